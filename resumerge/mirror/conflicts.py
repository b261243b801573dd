"""Files in a mirror that are not the run's: the user's, who may put some there at any time.

None of them is written over or removed. A model card is theirs to write, and is left as it is; any
other file would change what the model is, and gets another name where the place can do that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from resumerge.errors import Resumable
from resumerge.mirror.backup_names import CARD, backup_name
from resumerge.mirror.stores.base import METADATA, Moved, Store

_BOOK = re.compile(
    rf"{re.escape(METADATA)}/"
    r"(ledger-\d{6,}-\d{6,}-[0-9a-f]{32}\.db|lease-\d{6,9}\.json|done\.json"
    r"|probe-[0-9a-f]{8}-\d|clock-[0-9a-f]{8})(\.part)?"
)

Tell = Callable[[str, str], None]
"""Told the name of a file that is not ours, and the name that it has now."""


def metadata_in(names: Iterable[str]) -> set[str]:
    """Those among the names of files that are the run's bookkeeping, whole or not."""
    return {name for name in names if _BOOK.fullmatch(name)}


class ConflictKeeper:
    """Makes way for files of a run in its mirror."""

    def __init__(self, store: Store, tell: Tell, moved: Moved) -> None:
        self._store, self._tell, self._moved = store, tell, moved
        self._told: set[str] = set()

    def make_way(self, name: str, content: bytes | Path, there: int | None) -> bool:
        """See that a name is free for a file of the run, or has one of ours.

        Args:
            content: that is to have this name: the bytes, or where they are.
            there: bytes of the file that has it now; None where none has.

        Returns:
            False where the file that is there is to stay under its name.

        Raises:
            Resumable: it is the user's, and the place cannot give it another name.
            OSError: the mirror cannot be used now.
        """
        if there is None or self._is_ours(name, content, there):
            return True
        if name == CARD:
            if name not in self._told:
                self._told.add(name)
                self._tell(name, name)
            return False
        aside = backup_name(name, self._store.list().__contains__)
        if not self._store.rename(name, aside):
            raise Resumable(
                "mirror",
                f"The mirror at {self._store.url} has a file that this run did not write, {name}. "
                "Give it another name, or delete it, then resume",
            )
        self._tell(name, aside)
        return True

    def _is_ours(self, name: str, content: bytes | Path, there: int) -> bool:
        """Whether it is what is to be brought, or the beginning of that."""
        nbytes = len(content) if isinstance(content, bytes) else content.stat().st_size
        if isinstance(content, Path) and there == nbytes and name.endswith(".safetensors"):
            return True  # a shard, which may be damaged; whoever brings it reads all of it
        found = self._store.sha256(name, self._moved)
        if found is None:
            return False
        if there <= nbytes and found == _sha256(content, there):
            return True
        return self._store.is_placeholder(name, there)


def _sha256(content: bytes | Path, nbytes: int) -> str:
    """Of the first so many bytes."""
    digest = hashlib.sha256()
    for piece in _pieces(content):
        digest.update(memoryview(piece)[:nbytes])
        nbytes -= len(piece)
        if nbytes <= 0:
            break
    return digest.hexdigest()


def _pieces(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece
