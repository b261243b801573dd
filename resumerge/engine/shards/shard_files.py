"""The output's shards on disk: ``*.partial`` until every unit in them is committed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from resumerge.host.machine import existing_folder
from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage, is_in_memory

PARTIAL = ".partial"

COMPACTED = ".compacted"
"""The ending of an adapter's file while it is written without what is not kept."""

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
        self._clones: dict[int, bool] = {}
        """Whether files of a disk, by its number, can share their blocks with the output's."""
        self._lock = threading.Lock()

    def final(self, shard: Shard) -> Path:
        """Return the path of a sealed shard."""
        return self.folder / shard.name

    def partial(self, shard: Shard) -> Path:
        """Return the path of a shard until it is sealed."""
        return self.folder / (shard.name + PARTIAL)

    def compacted(self, shard: Shard) -> Path:
        """Return the path of a shard while it is written anew without what is not kept."""
        return self.folder / (shard.name + COMPACTED)

    def create(self, shard: Shard) -> None:
        """Create the partial file at its full size, with its header.

        What will share the blocks of a weight file gets no space of its own.
        """
        path = self.partial(shard)
        self._storage.make_folder(path.parent)
        sparse = self._sparse or self.will_share(shard)
        self._storage.create(path, shard.nbytes, shard.header, sparse=sparse)

    def unallocated(self, shard: Shard) -> int:
        """Return the bytes of disk space that a shard still needs."""
        path = next((p for p in (self.final(shard), self.partial(shard)) if p.exists()), None)
        if path is None:
            return 0 if self.will_share(shard) else shard.nbytes
        # On a disk a file got its space when it was created; it may be compressed since.
        taken = path.stat().st_blocks * 512 if is_in_memory(self.folder) else shard.nbytes
        return max(0, shard.nbytes - taken)

    def remove(self, shard: Shard) -> None:
        """Delete the partial file, if there is one."""
        self._close(shard.index)
        self._storage.remove(self.partial(shard))

    def remove_final(self, shard: Shard) -> None:
        """Delete the sealed file, if there is one."""
        self._storage.remove(self.final(shard))

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

    def will_share(self, shard: Shard) -> bool:
        """Return whether a shard can share the blocks of the weight file that it is a copy of.

        The filesystem is asked by an unnamed file, once for each disk that weight files are on.
        """
        source = self._copied_file(shard)
        if source is None:
            return False
        try:
            disk = source.stat().st_dev
        except OSError:
            return False  # it is still to be downloaded
        if disk not in self._clones:
            self._clones[disk] = self._can_clone(source)
        return self._clones[disk]

    def _can_clone(self, source: Path) -> bool:
        folder = existing_folder(self.folder.absolute())
        if folder is None:
            return False
        try:
            fd = self._storage.scratch(folder)
        except OSError:
            return False
        try:
            return self._storage.clone(source, fd)
        finally:
            os.close(fd)

    def _copied_file(self, shard: Shard) -> Path | None:
        """Return the weight file that a shard is a copy of; None without one on this machine."""
        if shard.copied is None:
            return None
        number, file = shard.copied
        source = self._plan.sources[number]
        return None if source.is_streamed(file) else source.path(file)

    def is_cloned(self, number: int) -> bool:
        """Return whether a shard shares the blocks of the weight file that it is a copy of.

        The first call makes the partial file a clone if the filesystem can: the weight file has to
        be here then. Whatever was written to the partial file before is the same in the clone.
        """
        source = self._copied_file(self._plan.shards[number])
        if source is None:
            return False
        descriptor = self.descriptor(number)
        with self._lock:
            if number not in self._cloned:
                self._cloned[number] = self._storage.clone(source, descriptor)
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
