"""Room on disk for shards that get their files one after the other, as the mirror frees others."""

from __future__ import annotations

import errno

from resumerge.engine.files import ShardFiles
from resumerge.engine.preflight import free_bytes
from resumerge.errors import Resumable
from resumerge.mirror import Mirror
from resumerge.planning.estimate import COMPANION_BYTES
from resumerge.planning.model import Plan

RESERVE = COMPANION_BYTES // 2
"""Bytes that shards leave free, for the ledger and the files beside the shards."""


class Room:
    """Which shards have their files, and whether another can have its own now.

    Without a mirror that frees shards, every shard has its file from the beginning.
    """

    def __init__(self, plan: Plan, files: ShardFiles, mirror: Mirror | None = None) -> None:
        """
        Args:
            mirror: that frees shards here.
        """
        self._plan, self._files, self._mirror = plan, files, mirror
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
