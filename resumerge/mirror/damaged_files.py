"""The files of a mirror that are missing or differ from what is promised of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from resumerge.mirror.stores.base import Moved, Store


def find_damaged(
    store: Store, files: Mapping[str, tuple[int, str]], moved: Moved
) -> dict[str, str]:
    """Compare files in a mirror with what was promised of them.

    Args:
        store: the mirror.
        files: the bytes and SHA-256 that each file should have.
        moved: gets the number of bytes that were read; may raise to stop.

    Returns:
        what is wrong, by the name of the file; nothing of files that are right.

    Raises:
        OSError: the mirror cannot be read now.
    """
    listed = store.list()
    problems = {}
    for name, (nbytes, sha256) in files.items():
        if ".." in PurePosixPath(name).parts or name.startswith("/"):
            problems[name] = "its name points outside of the mirror"
        elif name not in listed:
            problems[name] = "it is missing"
        elif listed[name] != nbytes:
            problems[name] = f"it has {listed[name]} bytes instead of {nbytes}"
        elif store.sha256(name, moved) != sha256:
            problems[name] = "its content differs"
    return problems
