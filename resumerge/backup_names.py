"""Backup names for files of the user that have the name of an output file."""

from __future__ import annotations

import re
from collections.abc import Callable

_SUFFIX = ".kept"
"""The suffix of backup names."""

_NAME = re.compile(rf".+{re.escape(_SUFFIX)}[0-9]*", re.DOTALL)


def backup_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return a file's backup name: its name and ``.kept``, with a number if that name is taken."""
    number, candidate = 1, name + _SUFFIX
    while is_taken(candidate):
        number += 1
        candidate = f"{name}{_SUFFIX}{number}"
    return candidate


def is_backup(name: str) -> bool:
    """Return whether a name is a backup name. A mirror may contain such files."""
    return _NAME.fullmatch(name) is not None
