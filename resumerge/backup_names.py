"""Names of files that a run finds in its way and keeps, in its output folder and in its mirror."""

from __future__ import annotations

import re
from collections.abc import Callable

CARD = "README.md"
"""A text for people, theirs to edit: it stays as it is."""

_ASIDE = ".kept"
"""At the end of the name that any other file gets, so that the run's own can have its name."""

_NAME = re.compile(rf".+{re.escape(_ASIDE)}[0-9]*", re.DOTALL)


def backup_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """The name of a file that is set aside: its own and ``.kept``, with a number if need be."""
    number, aside = 1, name + _ASIDE
    while is_taken(aside):
        number += 1
        aside = f"{name}{_ASIDE}{number}"
    return aside


def is_backup(name: str) -> bool:
    """Whether it is the name of a file that was set aside; such ones hinder no run."""
    return _NAME.fullmatch(name) is not None
