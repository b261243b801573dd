"""The paths that a recipe from a page may name: those below one folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem
from resumerge.recipe.yaml_lines import descend, load_yaml, nearest_line

RECIPE = "recipe"
"""What messages call the text of a recipe that is no file."""

_WORDS = ("chat_template", "negative_prompts", "positive_prompts", "token")
"""The keys whose values are words for a model, and no paths."""

Location = tuple[str | int, ...]


def check_paths(text: str, folder: Path) -> None:
    """Refuse a recipe that names a path outside of a folder.

    What is there is not looked at. A link in the folder may lead out of it: who made it let others
    in.

    Args:
        text: the YAML text.
        folder: the folder, which relative paths begin at.

    Raises:
        InputError: with every such path; or the text is not YAML.
    """
    problems = [
        Problem(
            "This path leads out of the page's folder",
            RECIPE,
            path := descend("", at),
            nearest_line(document.lines, path),
            expected=f"a path below {folder}, a model on the Hub, or one in a bucket",
            found=value,
            fix="Copy the model into this folder, or make a link to it there, and name that",
        )
        for document in load_yaml(text, RECIPE)
        for at, value in _texts(document.data, ())
        if any(_leads_out(part.strip(), folder) for part in (value, *value.split("+")))
    ]
    if problems:
        raise InputError(problems)


def _texts(value: Any, at: Location) -> Iterator[tuple[Location, str]]:
    """Yield every text below a value that may be a path."""
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
