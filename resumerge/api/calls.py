"""Code that the functions share: errors that name arguments, recipes and runs in all forms."""

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
"""A recipe: a YAML file, or its content as mappings."""

RECIPE, RUN = "recipe", "name of the run"

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def speaks_python(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Return a function whose errors name its arguments, not the command line's options."""

    @wraps(function)
    def speaking(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        except ResumergeError as error:
            error_in_python(error)
            raise

    return speaking


def recipe_file(config: Config) -> AbstractContextManager[RecipeFile]:
    """Return a context with the recipe as a file; a file for mappings exists only inside it."""
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
    """Return the runs whose ledgers are in a folder; by default ./state, or RESUMERGE_STATE_DIR."""
    return RunStore(None if state_dir is None else local_path(state_dir, STATE))


def address_of(run: StrPath | None) -> str | None:
    """Return the name of a run as commands take it: its id, output or mirror.

    Raises:
        InputError: it is neither text nor a path.
    """
    if run is None:
        return None
    if not is_path(run):
        raise refuse(f"The {RUN} is not a path", expected="text, or a Path", found=repr(run))
    return read_address(run)


def text_of(given: object, name: str) -> str:
    """Return an argument that is a text.

    Raises:
        InputError: it is none.
    """
    if not isinstance(given, str):
        raise refuse(f"The value of {name} is invalid", expected="a text", found=repr(given))
    return given


def model_of(given: object) -> str:
    """Return the reference of a model, given as a recipe has it or as a path.

    Raises:
        InputError: it is neither text nor a path, like a list of models.
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
    """Return the texts of an argument that takes several; a text alone is one, not its letters.

    Raises:
        InputError: it is neither a text nor a sequence of them.
    """
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts):
        return tuple(texts)
    expected = "a text, or a list of texts"
    raise refuse(f"The value of {name} is invalid", expected=expected, found=repr(given))
