"""Disk space for shards: if a mirror frees sealed shards, space is reserved shard by shard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.errors import Reason, Resumable
from resumerge.host.machine import FREE_BESIDE_SHARDS, existing_folder, free_bytes
from resumerge.ledger import Progress
from resumerge.mirror import Replicator
from resumerge.planning.estimates.estimate import Estimate
from resumerge.planning.plan import Plan
from resumerge.sizes import show_size
from resumerge.storage import DISK_FULL, is_in_memory


def starts_sparse(estimate: Estimate, out: Path, *, frees: bool) -> bool:
    """Return whether shards get their space as they are written, and not when they are created.

    They do in memory (tmpfs), where reserving space fills it with zeros: that takes half a second
    for 2 GB, and the memory of the whole output before the merge begins. If the memory runs out
    midway, a write fails, and the run can be resumed. But if this run downloads files, space is
    reserved, because the downloads might take it.

    Args:
        estimate: the plan's estimate.
        out: the output folder.
        frees: whether shards are deleted once the mirror has them, which makes space for the next.
    """
    return not frees and not estimate.missing and is_in_memory(out)


class SpaceReservation:
    """The disk space of shards: which shards have their space, and which can get it now.

    Without a mirror that frees shards, every shard has its space from the beginning.

    Args:
        plan: the plan.
        files: the shards.
        progress: the progress of every unit.
        replicator: the replicator of the mirror that frees shards here; None if none does.
    """

    def __init__(
        self,
        plan: Plan,
        files: ShardFiles,
        progress: Sequence[Progress],
        replicator: Replicator | None = None,
    ) -> None:
        self._plan, self._files, self._replicator = plan, files, replicator
        pending = (unit.shard for unit, done in zip(plan.units, progress) if not done.is_complete)
        self._pending = sorted(set(pending))
        self._allocated = {shard.number for shard in plan.shards if files.partial(shard).exists()}

    def is_allocated(self, number: int) -> bool:
        """Return whether a shard has its space."""
        return self._replicator is None or number in self._allocated

    def reserve(self, number: int) -> bool:
        """Allocate a shard's space if it has none yet. Return False if the disk lacks room."""
        if self.is_allocated(number):
            return True
        shard = self._plan.shards[number]
        if free_bytes(self._files.folder) < self._files.unallocated(shard) + FREE_BESIDE_SHARDS:
            return False
        try:
            self._files.create(shard)
        except OSError as error:
            self._files.remove(shard)
            if error.errno in DISK_FULL:  # another process took the space
                return False
            raise
        self._allocated.add(number)
        return True

    def will_be_freed(self, waited: float) -> bool:
        """Return whether space will be freed, or end the run if the mirror makes no progress.

        Space will be freed while a sealed shard is on its way to the mirror.

        Args:
            waited: seconds that the caller has waited so far.

        Raises:
            Resumable: the mirror makes no progress.
        """
        return self._replicator is not None and self._replicator.frees(waited)

    def reserved_bytes(self, blocked: bool, cache: Path) -> int:
        """Return the bytes that downloads to the same disk must leave free: the next shard's.

        Args:
            blocked: whether no unit can be computed, and no space will be freed, until another file
                is downloaded. Then no space is left free for the next shard as long as a shard that
                has its space is unfinished.
            cache: the folder that is downloaded to.
        """
        allocated = self._allocated.copy()
        upcoming = next((n for n in self._pending if n not in allocated), None)
        if self._replicator is None or upcoming is None or not self._is_on_disk_of(cache):
            return 0
        if blocked and any(self._files.partial(self._plan.shards[n]).exists() for n in allocated):
            return 0
        return self._plan.shards[upcoming].nbytes + FREE_BESIDE_SHARDS

    def _is_on_disk_of(self, other: Path) -> bool:
        folders = [existing_folder(path.absolute()) for path in (self._files.folder, other)]
        devices = [folder.stat().st_dev for folder in folders if folder is not None]
        return len(devices) == 2 and devices[0] == devices[1]

    def no_space(self, number: int) -> Resumable:
        """Return the error that there is no space for a shard."""
        shard = self._plan.shards[number]
        needed, free = shard.nbytes + FREE_BESIDE_SHARDS, free_bytes(self._files.folder)
        return Resumable(
            Reason.DISK_FULL,
            f"No disk space for {shard.name}: {show_size(needed)} is needed in "
            f"{self._files.folder}, and {show_size(free)} is free. Shards that "
            "the mirror has were already deleted here. Free some more space, then resume.",
        )
