"""The output's shards on disk: ``*.partial`` until every unit in them is committed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage, is_in_memory

PARTIAL = ".partial"

TASKS = ".resumerge-tasks"
"""The folder in an output where tasks of a cluster work."""


class ShardFiles:
    """The files of one plan's shards in its output folder.

    Args:
        plan: the plan.
        folder: the output folder.
        storage: the operations on files.
        sparse: whether to allocate shards as they are written (see `allocates_lazily`).
    """

    def __init__(self, plan: Plan, folder: Path, storage: Storage, *, sparse: bool = False) -> None:
        self._plan = plan
        self.folder = folder
        self._storage = storage
        self._sparse = sparse
        self._open: dict[int, int] = {}
        self._cloned: dict[int, bool] = {}
        self._lock = threading.Lock()

    def final(self, shard: Shard) -> Path:
        """Return the path of a sealed shard."""
        return self.folder / shard.name

    def partial(self, shard: Shard) -> Path:
        """Return the path of a shard until it is sealed."""
        return self.folder / (shard.name + PARTIAL)

    def create(self, shard: Shard) -> None:
        """Create the partial file at its full size, with its header."""
        path = self.partial(shard)
        self._storage.make_folder(path.parent)
        self._storage.create(path, shard.nbytes, shard.header, sparse=self._sparse)

    def unallocated(self, shard: Shard) -> int:
        """Return the bytes of disk space that a shard still needs."""
        path = next((p for p in (self.final(shard), self.partial(shard)) if p.exists()), None)
        if path is None:
            return shard.nbytes
        # On a disk a file got its space when it was created; it may be compressed since.
        taken = path.stat().st_blocks * 512 if is_in_memory(self.folder) else shard.nbytes
        return max(0, shard.nbytes - taken)

    def remove(self, shard: Shard) -> None:
        """Delete the partial file, if there is one."""
        self._close(shard.index)
        self._storage.remove(self.partial(shard))

    def is_intact(self, shard: Shard, path: Path) -> bool:
        """Return whether a file has the shard's size and header."""
        try:
            if path.stat().st_size != shard.nbytes:
                return False
            with path.open("rb") as stream:
                return stream.read(len(shard.header)) == shard.header
        except OSError:
            return False

    def descriptor(self, number: int) -> int:
        """Return an open descriptor of a shard's partial file."""
        with self._lock:
            if number not in self._open:
                path = self.partial(self._plan.shards[number])
                self._open[number] = self._storage.open(path)
            return self._open[number]

    def is_cloned(self, number: int) -> bool:
        """Return whether a shard shares the blocks of the weight file that it is a copy of.

        The first call makes the partial file a clone if the filesystem can: the weight file has to
        be here then. Whatever was written to the partial file before is the same in the clone.
        """
        shard = self._plan.shards[number]
        if shard.copied is None:
            return False
        descriptor = self.descriptor(number)
        with self._lock:
            if number not in self._cloned:
                source, file = shard.copied
                model = self._plan.sources[source]
                self._cloned[number] = not model.is_streamed(file) and self._storage.clone(
                    model.path(file), descriptor
                )
            return self._cloned[number]

    def sync(self, number: int) -> None:
        """Make what was written to a shard durable."""
        self._storage.sync_data(self.descriptor(number))

    def seal(self, shard: Shard) -> None:
        """Rename a complete shard to its final name, durably."""
        self._close(shard.index)
        self._storage.sync_file(self.partial(shard))
        self._storage.rename(self.partial(shard), self.final(shard))

    def unseal(self, shard: Shard) -> None:
        """Rename a shard that turned out to be incomplete back to its partial name."""
        self._storage.rename(self.final(shard), self.partial(shard))

    def close(self) -> None:
        """Close every file."""
        for number in list(self._open):
            self._close(number)

    def _close(self, number: int) -> None:
        with self._lock:
            fd = self._open.pop(number, None)
            if fd is not None:
                os.close(fd)
