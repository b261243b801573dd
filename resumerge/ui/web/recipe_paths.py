"""The check that a recipe from a page names only paths below one folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem
from resumerge.recipe.yaml_lines import descend, load_yaml, nearest_line

RECIPE = "recipe"
"""The name in messages for a recipe that is not in a file."""

WHAT = "This path leads out of the page's folder"
EXPECTED = "a path below {}, a model on the Hub, or one in a bucket"
FIX = "Copy the model into this folder, or make a link to it there, and name that"

_WORDS = ("chat_template", "negative_prompts", "positive_prompts", "token")
"""The keys whose values are texts for a model, not paths."""

Location = tuple[str | int, ...]


def check_paths(text: str, folder: Path) -> None:
    """Refuse a recipe that names a path outside of a folder.

    Only the text of a path is checked, not the filesystem. A link in the folder may lead out of it,
    since the owner of the folder made the link.

    Args:
        text: the recipe, of one document or several, as a person typed it.
        folder: the folder, to which paths are relative.

    Raises:
        InputError: the recipe names such paths, all of which are listed; or the text is not YAML.
    """
    problems = [
        Problem(
            WHAT,
            RECIPE,
            path := descend("", location),
            nearest_line(document.lines, path),
            expected=EXPECTED.format(folder),
            found=value,
            fix=FIX,
        )
        for document in load_yaml(text, RECIPE)
        for location, value in _texts(document.data, ())
        if leads_out(value, folder)
    ]
    if problems:
        raise InputError(problems)


def check_model_names(models: Iterable[str], folder: Path) -> None:
    """Refuse references to models, as in a recipe, that are paths outside of a folder.

    Args:
        models: references as in a recipe; each part of ``model+adapter`` is checked.
        folder: the folder, to which paths are relative.

    Raises:
        InputError: there are such references, all of which are listed.
    """
    problems = [
        Problem(WHAT, expected=EXPECTED.format(folder), found=model, fix=FIX)
        for model in models
        if leads_out(model, folder)
    ]
    if problems:
        raise InputError(problems)


def leads_out(model: str, folder: Path) -> bool:
    """Return whether a reference, or a part of ``model+adapter``, is a path outside of a folder."""
    return any(_leads_out(part.strip(), folder) for part in (model, *model.split("+")))


def _texts(value: Any, at: Location) -> Iterator[tuple[Location, str]]:
    """Yield (place, text) of each text in a recipe's value that may be a path."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            if key not in _WORDS:
                yield from _texts(entry, (*at, key))
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _texts(entry, (*at, number))


def _leads_out(name: str, folder: Path) -> bool:
    if not name.startswith(("/", "~")) and ".." not in name.split("/"):
        return False
    path = os.path.normpath(folder / os.path.expanduser(name))  # noqa: PTH111
    return not Path(path).is_relative_to(folder)
