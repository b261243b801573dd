"""Which unit is next: those that are not committed, as soon as the files they read are here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from resumerge.engine.stop import Stop
from resumerge.planning.model import Plan, Unit
from resumerge.sources.fetcher import Fetcher
from resumerge.sources.model import Source

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


def fetching_order(plan: Plan, units: Iterable[Unit]) -> list[tuple[Source, str]]:
    """The files that units read, in an order that lets the first units be computed soon.

    Again and again the files come next that complete some unit with the fewest bytes.
    """
    first: dict[Files, int] = {}
    for unit in units:
        first.setdefault(files_of(plan, unit), unit.index)
    chosen: dict[tuple[int, str], None] = {}

    def cost(files: Files) -> tuple[int, int]:
        missing = sum(plan.sources[n].files[f].size for n, f in files if (n, f) not in chosen)
        return missing, first[files]

    left = set(first)
    while left:
        cheapest = min(left, key=cost)
        left.remove(cheapest)
        chosen.update(dict.fromkeys(sorted(cheapest)))
    return [(plan.sources[number], name) for number, name in chosen]


class Pending:
    """The units of a plan that are to be computed, in its order as far as their files are here."""

    def __init__(self, plan: Plan, units: Iterable[Unit], fetcher: Fetcher) -> None:
        self._plan, self._fetcher = plan, fetcher
        self._waiting: dict[Files, list[int]] = {}
        self._ready: list[int] = []
        self._seen = -1
        for unit in units:
            self._waiting.setdefault(files_of(plan, unit), []).append(unit.index)

    def take(self) -> Unit | None:
        """The next unit; None where there is none, or none whose files are here."""
        self._look()
        return self._plan.units[heappop(self._ready)] if self._ready else None

    def wait(self, stop: Stop, tell: Callable[[], None]) -> bool:
        """Wait for the files of a unit.

        Args:
            tell: called now and then meanwhile.

        Returns:
            Whether there is a unit; False at the end, and where a signal asks to stop.

        Raises:
            Resumable: a file cannot be brought.
        """
        self._look()
        self._fetcher.starving = not self._ready
        while not self._ready and self._waiting and not stop.requested:
            self._fetcher.wait(LOOK_SECONDS)
            self._look()
            tell()
        self._fetcher.starving = False
        return bool(self._ready) and not stop.requested

    def _look(self) -> None:
        if self._seen == self._fetcher.arrived:
            return
        self._seen = self._fetcher.arrived
        for files in [f for f in self._waiting if self._are_here(f)]:
            for number in self._waiting.pop(files):
                heappush(self._ready, number)

    def _are_here(self, files: Files) -> bool:
        return all(self._fetcher.has(self._plan.sources[n], name) for n, name in files)
