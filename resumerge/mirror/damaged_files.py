"""The check of a mirror's files for missing and damaged ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from resumerge.mirror.stores.base import Moved, Store


def find_damaged(
    store: Store, files: Mapping[str, tuple[int, str]], moved: Moved
) -> dict[str, str]:
    """Compare files in a mirror with their recorded sizes and hashes.

    Args:
        store: the store of the mirror, which is only read.
        files: the expected size in bytes and SHA-256 (hex digits) of each file, by name.
        moved: called with the number of bytes that were read; may raise to stop.

    Returns:
        a description of the damage for each damaged or missing file, by name.

    Raises:
        OSError: the mirror cannot be read now.
    """
    mirror_sizes = store.list()
    problems = {}
    for name, (nbytes, sha256) in files.items():
        if ".." in PurePosixPath(name).parts or name.startswith("/"):
            problems[name] = "its name points outside of the mirror"
        elif name not in mirror_sizes:
            problems[name] = "it is missing"
        elif mirror_sizes[name] != nbytes:
            problems[name] = f"it has {mirror_sizes[name]} bytes instead of {nbytes}"
        elif store.sha256(name, moved) != sha256:
            problems[name] = "its content differs"
    return problems
