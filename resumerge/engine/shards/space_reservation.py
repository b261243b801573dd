"""Disk space for shards, reserved shard by shard if shards are deleted once the mirror has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from resumerge.engine.resources.resource_errors import is_full
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.errors import Reason, Resumable
from resumerge.host.machine import FREE_BESIDE_SHARDS, existing_folder, free_bytes
from resumerge.ledger import Progress
from resumerge.mirror import Replicator
from resumerge.planning.estimates.estimate import Estimate
from resumerge.planning.plan import Plan
from resumerge.sizes import show_size
from resumerge.storage import is_in_memory


def starts_sparse(estimate: Estimate, out: Path, *, frees: bool) -> bool:
    """Return whether disk space is allocated as shards are written, not when they are created.

    The result is True in memory (tmpfs), where reserved space is filled with zeros. Reserving would
    take half a second for 2 GB, and the memory of the whole output before the merge begins. If the
    memory runs out later, a write fails, and the run can be resumed. Space is still reserved if
    this run downloads files, because the downloads might take it.

    Args:
        estimate: the estimate of the plan; if it has `missing` files, space is reserved.
        out: the output folder.
        frees: whether shards are deleted once the mirror has them, to make space for the next
            shards.
    """
    return not frees and not estimate.missing and is_in_memory(out)


class SpaceReservation:
    """The disk space of shards: records which shards have space, and reserves more.

    If no mirror frees shards, every shard has its space from the beginning.

    Args:
        plan: the plan whose shards get disk space.
        files: the files of the shards after recovery; those with a partial file already have space.
        progress: the progress of every unit of the plan, in its order.
        replicator: the replicator of the mirror that frees shards; None if no mirror does.
    """

    def __init__(
        self,
        plan: Plan,
        files: ShardFiles,
        progress: Sequence[Progress],
        replicator: Replicator | None = None,
    ) -> None:
        self._plan, self._files, self._replicator = plan, files, replicator
        pending_shards = (
            unit.shard
            for unit, unit_progress in zip(plan.units, progress)
            if not unit_progress.is_complete
        )
        self._pending = sorted(set(pending_shards))
        self._allocated = {shard.number for shard in plan.shards if files.partial(shard).exists()}

    def is_allocated(self, number: int) -> bool:
        """Return whether a shard already has its disk space."""
        return self._replicator is None or number in self._allocated

    def reserve(self, number: int) -> bool:
        """Allocate a shard's space if necessary; return False if the disk has too little room."""
        if self.is_allocated(number):
            return True
        shard = self._plan.shards[number]
        if free_bytes(self._files.folder) < self._files.unallocated(shard) + FREE_BESIDE_SHARDS:
            return False
        try:
            self._files.create(shard)
        except OSError as error:
            self._files.remove(shard)
            if is_full(error):  # another process took the space
                return False
            raise
        self._allocated.add(number)
        return True

    def will_be_freed(self, waited: float) -> bool:
        """Return whether disk space will be freed.

        Space will be freed if a sealed shard is being copied to the mirror.

        Args:
            waited: the seconds that the caller has waited without any progress of downloads.

        Raises:
            Resumable: the mirror makes no progress.
        """
        return self._replicator is not None and self._replicator.frees(waited)

    def reserved_bytes(self, blocked: bool, cache: Path) -> int:
        """Return the bytes that downloads must leave free on their disk, for the next shard.

        Args:
            blocked: whether no unit can be computed, and no space will be freed, until another file
                is downloaded. If so, nothing is left free while a shard with disk space is
                unfinished.
            cache: the folder of the downloads.
        """
        allocated_shards = self._allocated.copy()
        next_shard = next((n for n in self._pending if n not in allocated_shards), None)
        if self._replicator is None or next_shard is None or not self._is_on_disk_of(cache):
            return 0
        if blocked and any(
            self._files.partial(self._plan.shards[n]).exists() for n in allocated_shards
        ):
            return 0
        return self._plan.shards[next_shard].nbytes + FREE_BESIDE_SHARDS

    def _is_on_disk_of(self, other: Path) -> bool:
        folders = [existing_folder(path.absolute()) for path in (self._files.folder, other)]
        devices = [folder.stat().st_dev for folder in folders if folder is not None]
        return len(devices) == 2 and devices[0] == devices[1]

    def no_space(self, number: int) -> Resumable:
        """Return the error for a shard without disk space."""
        shard = self._plan.shards[number]
        needed_bytes = shard.nbytes + FREE_BESIDE_SHARDS
        available_bytes = free_bytes(self._files.folder)
        return Resumable(
            Reason.DISK_FULL,
            f"No disk space for {shard.name}: {show_size(needed_bytes)} is needed in "
            f"{self._files.folder}, and {show_size(available_bytes)} is free. Shards that "
            "the mirror has were already deleted here. Free some more space, then resume.",
        )
