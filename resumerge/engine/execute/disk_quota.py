"""Room on disk for shards that get their files one after the other, as the mirror frees others."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from resumerge.engine.checks.preflight import existing_folder, free_bytes
from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.errors import Resumable
from resumerge.hub.cache import cache_folder
from resumerge.ledger import Progress
from resumerge.mirror import Replicator
from resumerge.planning.estimates.estimate import COMPANION_BYTES
from resumerge.planning.plan import Plan
from resumerge.storage import is_in_memory

RESERVE = COMPANION_BYTES // 2
"""Bytes that shards leave free, for the ledger and the files beside the shards."""


def takes_space_later(plan: Plan, out: Path, *, frees: bool) -> bool:
    """Whether shards are to get their space as they are written, and not when they are made.

    That is so in memory (tmpfs): to give a file space there is to fill it with zeros, half a second
    for 2 GB, and takes the memory of the whole output from a merge that has yet to begin. A disk
    that is full midway is found then, by a write that fails; the run can be resumed. Not where this
    run brings files to the same disk meanwhile: those would take the space that shards count on.

    Args:
        frees: shards go away once the mirror has them, and the next one then gets its space.
    """
    if frees or not is_in_memory(out):
        return False
    return all(
        source.files[name].present
        for number, source in enumerate(plan.sources)
        for name in plan.bytes_needed(number)
    )


class DiskQuota:
    """Which shards have their files, and whether another can have its own now.

    Without a mirror that frees shards, every shard has its file from the beginning.
    """

    def __init__(
        self,
        plan: Plan,
        files: ShardFiles,
        progress: Sequence[Progress],
        mirror: Replicator | None = None,
    ) -> None:
        """
        Args:
            progress: of every unit.
            mirror: that frees shards here.
        """
        self._plan, self._files, self._mirror = plan, files, mirror
        pending = (u.shard for u, known in zip(plan.units, progress) if known.checksum is None)
        self._pending = sorted(set(pending))
        self._open = {shard.index for shard in plan.shards if files.partial(shard).exists()}

    def has(self, number: int) -> bool:
        """Whether a shard has its file."""
        return self._mirror is None or number in self._open

    def opens(self, number: int) -> bool:
        """Whether a shard has its file, made now if there is room for it."""
        if self.has(number):
            return True
        shard = self._plan.shards[number]
        if free_bytes(self._files.folder) < shard.nbytes + RESERVE:
            return False
        try:
            self._files.create(shard)
        except OSError as error:
            self._files.remove(shard)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # somebody else was quicker
                return False
            raise
        self._open.add(number)
        return True

    def comes(self, waited: float) -> bool:
        """Whether room will come: a shard is on its way to the mirror.

        Args:
            waited: for how many seconds it was.

        Raises:
            Resumable: the mirror does not get on.
        """
        return self._mirror is not None and self._mirror.frees(waited)

    def reserved_bytes(self, blocked: bool) -> int:
        """Bytes that downloads to the same disk must leave free: the next shard's.

        Args:
            blocked: nothing can be computed, nor will anything be freed, before another file is
                here; then a shard that has its file goes before the next one.
        """
        opened = self._open.copy()
        next_one = next((n for n in self._pending if n not in opened), None)
        if self._mirror is None or next_one is None or not self._is_on_disk_of(cache_folder()):
            return 0
        if blocked and any(self._files.partial(self._plan.shards[n]).exists() for n in opened):
            return 0
        return self._plan.shards[next_one].nbytes + RESERVE

    def _is_on_disk_of(self, other: Path) -> bool:
        folders = [existing_folder(path.absolute()) for path in (self._files.folder, other)]
        devices = [folder.stat().st_dev for folder in folders if folder is not None]
        return len(devices) == 2 and devices[0] == devices[1]

    def lacking(self, number: int) -> Resumable:
        """That there is no room for a shard, to be raised."""
        shard = self._plan.shards[number]
        free = free_bytes(self._files.folder)
        return Resumable(
            "disk_full",
            f"No room for {shard.name}: {(shard.nbytes + RESERVE) / 1e9:.2f} GB are needed in "
            f"{self._files.folder} and {free / 1e9:.2f} GB are free. What the mirror has is freed "
            "already; free some more space, then resume.",
        )
