"""Code that the functions share: error messages for Python users, and checks of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from resumerge.documents.recipe_file import RecipeFile, recipe_in_python
from resumerge.engine.checks.paths import STATE
from resumerge.errors import ResumergeError, refuse
from resumerge.ledger.run_store import RunStore
from resumerge.local_path import is_path, local_path
from resumerge.options.in_python import error_in_python
from resumerge.options.types import StrPath, read_address

Config: TypeAlias = StrPath | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A recipe: the path of a YAML file, or its content as a mapping or a list of mappings."""

RECIPE, RUN = "recipe", "name of the run"

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def speaks_python(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Decorate a function so that its errors name its arguments, not the command line's options."""

    @wraps(function)
    def speaking(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        except ResumergeError as error:
            error_in_python(error)
            raise

    return speaking


def recipe_file(config: Config) -> AbstractContextManager[RecipeFile]:
    """Return a context manager that yields the recipe as a file.

    Mappings are written to a temporary file, which is deleted at the end of the context.

    Raises:
        InputError: `config` is the text of a recipe, or a list with an item that is not a mapping.
    """
    if isinstance(config, Mapping):
        return recipe_in_python(config)
    if isinstance(config, str) and "\n" in config:
        expected = "a path, or a mapping as yaml.safe_load makes it of a recipe's text"
        raise refuse("This is the text of a recipe", expected=expected, found=repr(config)[:60])
    if isinstance(config, str) or not isinstance(config, Sequence):
        return nullcontext(RecipeFile(local_path(config, RECIPE)))
    documents = [document for document in config if isinstance(document, Mapping)]
    if not documents or len(documents) < len(config):
        expected = "a path, a mapping, or a list of mappings, one for each document"
        raise refuse("This is not a recipe", expected=expected, found=repr(config)[:60])
    return recipe_in_python(documents)


def runs_of(state_dir: StrPath | None) -> RunStore:
    """Return the runs of a state folder; None for RESUMERGE_STATE_DIR, else ``./state``."""
    return RunStore(None if state_dir is None else local_path(state_dir, STATE))


def address_of(run: StrPath | None) -> str | None:
    """Return an argument that names a run by its id, output or mirror, as text; None stays None.

    Raises:
        InputError: the argument is neither text nor a path.
    """
    if run is None:
        return None
    if not is_path(run):
        raise refuse(f"The {RUN} is not a path", expected="text, or a Path", found=repr(run))
    return read_address(run)


def text_of(given: object, name: str) -> str:
    """Return the value of an argument that must be text.

    Args:
        given: what the caller of the Python function passed; anything but a `str` is refused.
        name: the name of the argument, for the message.

    Raises:
        InputError: the value is not text.
    """
    if not isinstance(given, str):
        raise refuse(f"The value of {name} is invalid", expected="a text", found=repr(given))
    return given


def model_of(given: object) -> str:
    """Return an argument that names a model, by a reference as in a recipe or by a path, as text.

    Raises:
        InputError: the argument is neither text nor a path; for example, a list of models.
    """
    if not isinstance(given, StrPath):
        raise refuse(
            "This is not the name of a model",
            expected="text, or a Path",
            found=repr(given),
            fix="give each model as an argument of its own" if isinstance(given, list) else "",
        )
    return str(given)


def texts_of(given: object, name: str) -> tuple[str, ...]:
    """Return the value of an argument that accepts one text or a sequence of texts, as a tuple.

    Args:
        given: what the caller passed; a single text becomes a tuple of one.
        name: the name of the argument, for the message.

    Raises:
        InputError: the value is neither text nor a sequence of texts.
    """
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts):
        return tuple(texts)
    expected = "a text, or a list of texts"
    raise refuse(f"The value of {name} is invalid", expected=expected, found=repr(given))
