"""The output's shards on disk; a shard is ``*.partial`` until all of its units are committed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from resumerge.engine.shards.hard_links import HardLinks
from resumerge.host.machine import existing_folder
from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage, has_other_names, is_in_memory

PARTIAL = ".partial"

COMPACTED = ".compacted"
"""The suffix of an incomplete copy of a shard's file, made by compaction or by `share_if_copy`."""

SYNCS = 8
"""The number of shards that are synced at once."""

TASKS = ".resumerge-tasks"
"""The folder in an output in which tasks of a cluster work."""


class ShardFiles:
    """The files of a plan's shards in the output folder.

    Args:
        plan: the plan with the shards, and with the weight files that some of them are copies of.
        folder: the output folder, which may not exist yet.
        storage: the operations on files.
        sparse: whether disk space is allocated as shards are written, not when they are created
            (see `starts_sparse`).
        links: creates hard links for shards that are copies of weight files; None to copy these
            files.

    Attributes:
        unlinked: the names of shards that were copied because they could not be linked.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        storage: Storage,
        *,
        sparse: bool = False,
        links: HardLinks | None = None,
    ) -> None:
        self._plan = plan
        self.folder = folder
        self.unlinked: set[str] = set()
        self._storage = storage
        self._sparse = sparse
        self._links = links
        self._open: dict[int, int] = {}
        self._shared: dict[int, bool] = {}
        self._clones: dict[int, bool] = {}
        """Whether files of a disk can share blocks with files of the output, by device number."""
        self._lock = threading.RLock()

    def final(self, shard: Shard) -> Path:
        """Return the path of a shard's file after it is sealed."""
        return self.folder / shard.name

    def partial(self, shard: Shard) -> Path:
        """Return the path of a shard's file until it is sealed."""
        return self.folder / (shard.name + PARTIAL)

    def compacted(self, shard: Shard) -> Path:
        """Return the path of a copy of a shard's file while the copy is written."""
        return self.folder / (shard.name + COMPACTED)

    def create(self, shard: Shard) -> None:
        """Create the partial file with its full size and its header, or as a link.

        A shard that can be linked to a weight file is linked at once. No disk space is allocated
        for a shard that can share the blocks of a weight file.
        """
        path = self.partial(shard)
        self._storage.make_folder(path.parent)
        if self._link_if_possible(shard):
            return
        is_sparse = self._sparse or self.will_share(shard)
        self._storage.create(path, shard.nbytes, shard.header, sparse=is_sparse)

    def unallocated(self, shard: Shard) -> int:
        """Return the bytes of disk space that a shard does not have yet."""
        existing_path = next(
            (p for p in (self.final(shard), self.partial(shard)) if p.exists()), None
        )
        if existing_path is None:
            return 0 if self.will_share(shard) else shard.nbytes
        # On a disk, a file gets all of its space when it is created. It may still use fewer blocks,
        # because the filesystem may compress it.
        allocated_bytes = (
            existing_path.stat().st_blocks * 512 if is_in_memory(self.folder) else shard.nbytes
        )
        return max(0, shard.nbytes - allocated_bytes)

    def remove(self, shard: Shard) -> None:
        """Delete the partial file if it exists."""
        self._close(shard.number)
        self._storage.remove(self.partial(shard))

    def remove_final(self, shard: Shard) -> None:
        """Delete the sealed file if it exists."""
        self._storage.remove(self.final(shard))

    def has_size_and_header(self, shard: Shard, path: Path) -> bool:
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
            return self._descriptor(number)

    def _descriptor(self, number: int) -> int:
        if number not in self._open:
            self._open[number] = self._storage.open(self.partial(self._plan.shards[number]))
        return self._open[number]

    def will_share(self, shard: Shard) -> bool:
        """Return whether a shard is a copy of a weight file, and can share the blocks of this file.

        It can if it will be linked to the weight file, or if the filesystem can clone the weight
        file. Cloning is tried with an unnamed file, once for each disk that has weight files.
        """
        if self.will_link(shard):
            return True
        weight_file = self._copied_file(shard)
        if weight_file is None:
            return False
        try:
            device = weight_file.stat().st_dev
        except OSError:
            return False  # the weight file is not downloaded yet
        if device not in self._clones:
            self._clones[device] = self._can_clone(weight_file)
        return self._clones[device]

    def will_link(self, shard: Shard) -> bool:
        """Return whether a shard will be linked to a weight file, which must be on the same disk.

        The weight file may be downloaded later. If the system refuses the link, the shard is
        copied.
        """
        weight_file = self._copied_file(shard)
        if self._links is None or weight_file is None:
            return False
        places = [existing_folder(path.absolute()) for path in (self.folder, weight_file.resolve())]
        devices = [place.stat().st_dev for place in places if place is not None]
        return len(devices) == 2 and devices[0] == devices[1]

    def damaged_source(self, shard: Shard, path: Path) -> Path | None:
        """Return the local weight file to which a shard's damaged file is a hard link.

        None if the file is no such link, or if the weight file is in a cache. A cached file has a
        known hash. It is compared with the hash before it is read again, and downloaded again if it
        is damaged.

        Args:
            shard: a shard whose file was found damaged.
            path: the shard's partial or sealed file.
        """
        weight_file = self._copied_file(shard)
        if weight_file is None or shard.copied is None or not _is_same(weight_file, path):
            return None
        source, file_name = self._plan.sources[shard.copied[0]], shard.copied[1]
        if self._links is None or not source.part_of(file_name)[0].is_remote:
            return weight_file
        self._links.doubt(source, file_name)
        return None

    def _link_if_possible(self, shard: Shard) -> bool:
        """Make the partial file a link to its weight file if possible; return whether it is now."""
        weight_file, partial_path = self._copied_file(shard), self.partial(shard)
        if weight_file is None or not weight_file.exists():
            return False
        if _is_same(weight_file, partial_path):
            return True
        if not self.will_link(shard):
            return False
        assert self._links is not None and shard.copied is not None
        if self._links.make(self._plan.sources[shard.copied[0]], shard.copied[1], partial_path):
            self._close(shard.number)
            return True
        self.unlinked.add(shard.name)
        return False

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
        """Return the path of the weight file that a shard is a copy of.

        None if the shard is no copy, or if the weight file is streamed.
        """
        if shard.copied is None:
            return None
        source_number, file_name = shard.copied
        source = self._plan.sources[source_number]
        return None if source.is_streamed(file_name) else source.path(file_name)

    def share_if_copy(self, number: int) -> bool:
        """Make a shard share the blocks of its weight file if possible; return whether it does.

        The first call makes the partial file a link or a clone of the weight file, if the shard is
        a copy of a weight file on this machine. Blocks that were written before have the same
        bytes. Nothing may be written to a shard that shares blocks. A partial file that shares
        nothing has only one name after the call, so that writing to it changes no other file.
        """
        with self._lock:
            if number not in self._shared:
                self._shared[number] = self._share(self._plan.shards[number])
            return self._shared[number]

    def _share(self, shard: Shard) -> bool:
        partial_path = self.partial(shard)
        if self._link_if_possible(shard):
            return True
        if not partial_path.exists():  # a failed attempt to link removed it
            self._storage.create(partial_path, shard.nbytes, shard.header, sparse=self._sparse)
        elif has_other_names(partial_path):
            self._close(shard.number)
            self._storage.part(partial_path, self.compacted(shard))
        weight_file = self._copied_file(shard)
        return weight_file is not None and self._storage.clone(
            weight_file, self._descriptor(shard.number)
        )

    def sync(self, numbers: Iterable[int]) -> None:
        """Make the bytes written to shards durable; sync several files at the same time.

        If the files were synced in sequence, each sync would wait for its own transaction of the
        filesystem's journal.
        """
        descriptors = [self.descriptor(number) for number in numbers]
        with ThreadPoolExecutor(SYNCS, "sync") as pool:
            list(pool.map(self._storage.sync_data, descriptors))

    def seal(self, shard: Shard) -> None:
        """Sync a complete shard, and rename it to its final name; durable afterwards."""
        self._close(shard.number)
        self._storage.sync_file(self.partial(shard))
        self._storage.rename(self.partial(shard), self.final(shard))

    def unseal(self, shard: Shard) -> None:
        """Rename a sealed shard that is incomplete back to its partial name."""
        self._shared.pop(shard.number, None)
        self._storage.rename(self.final(shard), self.partial(shard))

    def close(self) -> None:
        """Close every open file."""
        for number in list(self._open):
            self._close(number)

    def _close(self, number: int) -> None:
        with self._lock:
            fd = self._open.pop(number, None)
            if fd is not None:
                os.close(fd)


def _is_same(source: Path, path: Path) -> bool:
    """Return whether two paths lead to the same file; False if either does not exist."""
    try:
        return source.samefile(path)
    except OSError:
        return False
