"""The order in which the units of a plan are computed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from resumerge.planning.plan import Plan, Unit
from resumerge.tensors import Merged, stored_in


def order_of_units(plan: Plan) -> Sequence[int]:
    """Return the numbers of a plan's units in the order in which they are computed.

    That is the plan's own. In a sweep, those that read the same tensors of files follow each other,
    also by way of others, as windows that overlap do; and among them those that need the same
    statistics.
    """
    if not plan.variants:
        return range(len(plan.units))
    groups, first = _Groups(), dict[Hashable, int]()
    alike = []
    for unit in plan.units:
        for leaf in stored_in(unit.expression):
            groups.join(first.setdefault(leaf, unit.index), unit.index)
        alike.append(first.setdefault(_statistics_key(unit), unit.index))
    places = ((groups.first(unit.index), alike[unit.index], unit.index) for unit in plan.units)
    return [number for *_, number in sorted(places)]


class _Groups:
    """Groups of numbers, each known by its smallest."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}

    def first(self, number: int) -> int:
        """Return the smallest number of a group."""
        while (before := self._before.get(number, number)) != number:
            self._before[number] = self._before.get(before, before)
            number = before
        return number

    def join(self, one: int, other: int) -> None:
        """Make one group of those of two numbers."""
        low, high = sorted((self.first(one), self.first(other)))
        self._before[high] = low


def _statistics_key(unit: Unit) -> Hashable:
    return unit.expression.statistics_key if isinstance(unit.expression, Merged) else unit.index
