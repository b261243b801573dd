"""The queue of pending units, ordered by the arrival of source files and by free disk space."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.shards.space_reservation import SpaceReservation
from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.planning.written.unit_order import have_same_reads, order_of_units
from resumerge.sources.remote.prefetch import DownloadProgress, Prefetcher
from resumerge.sources.types import Source

POLL_SECONDS = 0.25
"""Seconds between two checks for signals and downloads while no unit can be computed."""

RemoteFiles = frozenset[SourceFileKey]
"""The source files of a unit that have to be downloaded or streamed."""


def download_order(
    plan: Plan, units: Iterable[Unit], *, by_shard: bool = False
) -> list[tuple[Source, str]]:
    """Return the files to download for units, in an order that makes the first units ready early.

    At each step the unit with the fewest missing bytes is chosen, and its files are appended.

    Args:
        plan: the plan of the units; its sources give the sizes of the files.
        units: the pending units. Among those with equally few missing bytes the earlier unit of the
            plan is chosen.
        by_shard: whether all files of a shard come before the files that only later shards need.
    """
    first_units: dict[tuple[int, RemoteFiles], int] = {}
    for unit in units:
        downloaded_files = frozenset(
            (source, name)
            for source, name in plan.remote_files_of(unit)
            if not plan.sources[source].is_streamed(name)
        )
        first_units.setdefault((unit.shard if by_shard else 0, downloaded_files), unit.number)
    chosen_files: dict[tuple[int, str], None] = {}

    def cost(wanted: tuple[int, RemoteFiles]) -> tuple[int, int, int]:
        shard, remote_files = wanted
        missing_bytes = sum(
            plan.sources[n].files[f].size for n, f in remote_files if (n, f) not in chosen_files
        )
        return shard, missing_bytes, first_units[wanted]

    unchosen_file_sets = set(first_units)
    while unchosen_file_sets:
        cheapest_file_set = min(unchosen_file_sets, key=cost)
        unchosen_file_sets.remove(cheapest_file_set)
        chosen_files.update(dict.fromkeys(sorted(cheapest_file_set[1])))
    return [(plan.sources[number], name) for number, name in chosen_files]


class WorkQueue:
    """The queue of units with uncommitted blocks, in the order in which they are computed.

    A unit is ready when all of its source files are present. A ready unit can be taken when its
    shard has space on the disk.
    """

    def __init__(
        self, execution: ExecutionContext, prefetcher: Prefetcher, space: SpaceReservation
    ) -> None:
        self._plan, self._stop = execution.plan, execution.stop
        self._prefetcher, self._space = prefetcher, space
        self._waiting: dict[RemoteFiles, list[int]] = {}
        self._ready: dict[int, list[int]] = {}
        """For each shard a heap of its ready units, as places in `_order`."""
        self._order = order_of_units(self._plan)
        self._places = {number: place for place, number in enumerate(self._order)}
        self._progress = execution.progress
        self._ready_count_seen = -1
        for unit, unit_progress in zip(self._plan.units, execution.progress):
            if not unit_progress.is_complete:
                remote_files = self._plan.remote_files_of(unit)
                self._waiting.setdefault(remote_files, []).append(self._places[unit.number])

    def take(self) -> Unit | None:
        """Return the next ready unit whose shard has space on the disk; None if there is none."""
        self._move_ready()
        shard = self._reserve_shard()
        if shard is None:
            return None
        return self._take_first(shard)

    def take_with_same_reads(self, unit: Unit) -> Unit | None:
        """Return the next unit if one reading of the sources serves both units; else None.

        The result is also None if the next unit is not ready, its shard has no disk space, or its
        first uncommitted block has another number than the first uncommitted block of `unit`.
        """
        next_place = self._places[unit.number] + 1
        if next_place == len(self._order):
            return None
        next_unit = self._plan.units[self._order[next_place]]
        committed_blocks, next_committed_blocks = (
            self._progress[queued_unit.number].committed_blocks for queued_unit in (unit, next_unit)
        )
        if (
            committed_blocks != next_committed_blocks
            or self._ready.get(next_unit.shard, [-1])[0] != next_place
        ):
            return None
        if not have_same_reads(unit, next_unit) or not self._space.reserve(next_unit.shard):
            return None
        return self._take_first(next_unit.shard)

    @property
    def download_progress(self) -> DownloadProgress | None:
        """The progress of the downloads; None if this run downloads nothing."""
        return self._prefetcher.progress

    def wait(self, report: Callable[[], None]) -> bool:
        """Wait until a unit is ready and its shard has disk space.

        Args:
            report: called several times a second during the wait.

        Returns:
            True if a unit can be taken; False if no unit is left in the queue, or a signal asks the
            process to stop.

        Raises:
            Resumable: a file cannot be downloaded; or a shard has no disk space, and no space will
                be freed.
        """
        self._move_ready()
        waiting_since, last_progress = time.monotonic(), self._prefetcher.progress
        while (shard := self._reserve_shard()) is None and not self._is_over:
            if self._prefetcher.progress != last_progress:
                waiting_since, last_progress = time.monotonic(), self._prefetcher.progress
            space_expected = self._space.will_be_freed(time.monotonic() - waiting_since)
            self._prefetcher.ready_count_when_blocked = (
                None if space_expected else self._ready_count_seen
            )
            if self._ready and not space_expected and not self._allocated_shard_waits():
                if self._reserve_shard() is not None:  # space was freed since the first check
                    continue
                raise self._space.no_space(min(self._ready))
            self._prefetcher.wait(POLL_SECONDS)
            self._move_ready()
            report()
        self._prefetcher.ready_count_when_blocked = None
        return shard is not None and not self._stop.requested

    @property
    def _is_over(self) -> bool:
        return self._stop.requested or (not self._ready and not self._waiting)

    def _take_first(self, shard: int) -> Unit:
        """Remove the first ready unit of a shard from the queue, and return it."""
        place = heappop(self._ready[shard])
        if not self._ready[shard]:
            del self._ready[shard]
        return self._plan.units[self._order[place]]

    def _reserve_shard(self) -> int | None:
        """Reserve disk space for the first shard with a ready unit that fits on the disk.

        Return the shard's number; None if there is no such shard.
        """
        shards = sorted(self._ready, key=lambda shard: self._ready[shard][0])
        return next((shard for shard in shards if self._space.reserve(shard)), None)

    def _allocated_shard_waits(self) -> bool:
        """Return whether a unit still waits for files although its shard already has disk space."""
        waiting_places = (place for places in self._waiting.values() for place in places)
        waiting_shards = {self._plan.units[self._order[place]].shard for place in waiting_places}
        return any(self._space.is_allocated(shard) for shard in waiting_shards)

    def _move_ready(self) -> None:
        """Move units from waiting to ready if their files have arrived since the last call."""
        if self._ready_count_seen == self._prefetcher.ready_count:
            return
        self._ready_count_seen = self._prefetcher.ready_count
        for files in [f for f in self._waiting if self._are_present(f)]:
            for place in self._waiting.pop(files):
                shard = self._plan.units[self._order[place]].shard
                heappush(self._ready.setdefault(shard, []), place)

    def _are_present(self, files: RemoteFiles) -> bool:
        return all(self._prefetcher.is_ready(self._plan.sources[n], name) for n, name in files)
