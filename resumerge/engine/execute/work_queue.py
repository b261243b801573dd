"""Which unit is next: those that are not committed, as soon as the files they read are here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from resumerge.engine.execute.disk_quota import DiskQuota
from resumerge.engine.resources.signals import StopRequest
from resumerge.planning.plan import Plan, Unit
from resumerge.sources.hub.prefetch import Prefetcher
from resumerge.sources.types import Source

LOOK_SECONDS = 0.25
"""Time between two looks at signals and downloads while nothing can be computed."""

Files = frozenset[tuple[int, str]]
"""Files of the Hub: the number of the source, and the name."""


def files_of(plan: Plan, unit: Unit) -> Files:
    """The files of the Hub that a unit reads."""
    return frozenset(
        (number, part.file)
        for operand in unit.expression.operands
        for number, tensor in operand.tables
        for part in tensor.parts
        if plan.sources[number].part_of(part.file)[0].kind == "hub"
    )


def fetching_order(
    plan: Plan, units: Iterable[Unit], *, by_shard: bool = False
) -> list[tuple[Source, str]]:
    """The files that units read, in an order that lets the first units be computed soon.

    Again and again the files come next that complete some unit with the fewest bytes.

    Args:
        by_shard: what a shard needs comes before what only later ones need.
    """
    first: dict[tuple[int, Files], int] = {}
    for unit in units:
        first.setdefault((unit.shard if by_shard else 0, files_of(plan, unit)), unit.index)
    chosen: dict[tuple[int, str], None] = {}

    def cost(wanted: tuple[int, Files]) -> tuple[int, int, int]:
        shard, files = wanted
        missing = sum(plan.sources[n].files[f].size for n, f in files if (n, f) not in chosen)
        return shard, missing, first[wanted]

    left = set(first)
    while left:
        cheapest = min(left, key=cost)
        left.remove(cheapest)
        chosen.update(dict.fromkeys(sorted(cheapest[1])))
    return [(plan.sources[number], name) for number, name in chosen]


class WorkQueue:
    """The units of a plan that are to be computed, in its order as far as their files are here.

    And as far as there is room for their shards.
    """

    def __init__(
        self, plan: Plan, units: Iterable[Unit], prefetcher: Prefetcher, room: DiskQuota
    ) -> None:
        self._plan, self._prefetcher, self._room = plan, prefetcher, room
        self._waiting: dict[Files, list[int]] = {}
        self._ready: dict[int, list[int]] = {}
        self._seen = -1
        for unit in units:
            self._waiting.setdefault(files_of(plan, unit), []).append(unit.index)

    def take(self) -> Unit | None:
        """The next unit; None where there is none, or none whose files are here."""
        self._look()
        shard = self._open_shard()
        if shard is None:
            return None
        number = heappop(self._ready[shard])
        if not self._ready[shard]:
            del self._ready[shard]
        return self._plan.units[number]

    def wait(self, stop: StopRequest, tell: Callable[[], None]) -> bool:
        """Wait for the files of a unit, and room for its shard.

        Args:
            tell: called now and then meanwhile.

        Returns:
            Whether there is a unit; False at the end, and where a signal asks to stop.

        Raises:
            Resumable: a file cannot be brought, or there is no room and will not be.
        """
        self._look()
        began, progress = time.monotonic(), self._prefetcher.progress
        while (shard := self._open_shard()) is None and not self._is_empty and not stop.requested:
            if self._prefetcher.progress != progress:
                began, progress = time.monotonic(), self._prefetcher.progress
            hopeful = self._room.comes(time.monotonic() - began)
            self._prefetcher.blocked_at = None if hopeful else self._seen
            if self._ready and not hopeful and not self._open_shard_waits():
                if self._open_shard() is not None:  # the last one was freed since the first look
                    continue
                raise self._room.lacking(min(self._ready))
            self._prefetcher.wait(LOOK_SECONDS)
            self._look()
            tell()
        self._prefetcher.blocked_at = None
        return shard is not None and not stop.requested

    @property
    def _is_empty(self) -> bool:
        return not self._ready and not self._waiting

    def _open_shard(self) -> int | None:
        """The first shard with a unit that can be computed and written now."""
        return next((shard for shard in sorted(self._ready) if self._room.opens(shard)), None)

    def _open_shard_waits(self) -> bool:
        """Whether files are on their way that a shard needs which has its room."""
        shards = {self._plan.units[n].shard for units in self._waiting.values() for n in units}
        return any(self._room.has(shard) for shard in shards)

    def _look(self) -> None:
        if self._seen == self._prefetcher.ready_count:
            return
        self._seen = self._prefetcher.ready_count
        for files in [f for f in self._waiting if self._are_here(f)]:
            for number in self._waiting.pop(files):
                shard = self._plan.units[number].shard
                heappush(self._ready.setdefault(shard, []), number)

    def _are_here(self, files: Files) -> bool:
        return all(self._prefetcher.is_ready(self._plan.sources[n], name) for n, name in files)
