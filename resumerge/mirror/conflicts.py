"""Conflicting files: files of the user in a mirror that have the name of a file of the run.

A conflicting file is never replaced or removed. A model card keeps its name, because users edit
model cards. Any other file would change the model; it is renamed to a backup name if the store can
rename.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from resumerge.backup_names import backup_name
from resumerge.digests import sha256_of
from resumerge.errors import Reason, Resumable
from resumerge.mirror.stores.base import Moved, Store
from resumerge.output_path import CARD, is_weights

OnConflict = Callable[[str, str], None]
"""A callback with the name of a conflicting file and its new name.

If the file keeps its name, both are equal.
"""


class ConflictResolver:
    """A guard that keeps the names of a run's files free in its mirror.

    Args:
        store: the store of the mirror, whose files are read and renamed, but never removed.
        on_conflict: called for each conflicting file.
        moved: called with the number of bytes that were read; may raise to stop.
    """

    def __init__(self, store: Store, on_conflict: OnConflict, moved: Moved) -> None:
        self._store, self._on_conflict, self._moved = store, on_conflict, moved
        self._reported: set[str] = set()

    def make_way(self, name: str, content: bytes | Path, size: int | None) -> bool:
        """Free the name of a file of the run, by renaming a conflicting file if necessary.

        Args:
            name: the name in the mirror under which the run will write its file.
            content: the content to write: the bytes, or the local file.
            size: the size in bytes of the file in the mirror with this name; None if the mirror has
                no such file.

        Returns:
            True if the name may be written; False if a file of the user keeps it.

        Raises:
            Resumable: a file of the user has the name, and the store cannot rename it.
            OSError: the mirror cannot be used now.
        """
        if size is None or self._is_of_the_run(name, content, size):
            return True
        if name == CARD:
            if name not in self._reported:
                self._reported.add(name)
                self._on_conflict(name, name)
            return False
        new_name = backup_name(name, self._store.list().__contains__)
        if not self._store.rename(name, new_name):
            raise Resumable(
                Reason.MIRROR,
                f"The {self._store.place} has a file that this run did not write: {name}. "
                "Rename or delete it, then resume",
            )
        self._on_conflict(name, new_name)
        return True

    def _is_of_the_run(self, name: str, content: bytes | Path, size: int) -> bool:
        """Return whether the mirror's file is the content, the start of it, or a placeholder."""
        content_bytes = len(content) if isinstance(content, bytes) else content.stat().st_size
        if isinstance(content, Path) and size == content_bytes and is_weights(name):
            return True  # a shard, intact or damaged: the upload compares the whole file
        sha256 = self._store.sha256(name, self._moved)
        if sha256 is None:
            return False
        if size <= content_bytes and sha256 == _sha256_of_first(content, size):
            return True
        return self._store.is_placeholder(name, size)


def _sha256_of_first(content: bytes | Path, nbytes: int) -> str:
    if isinstance(content, Path):
        return sha256_of(content, most=nbytes)
    return hashlib.sha256(content[:nbytes]).hexdigest()
