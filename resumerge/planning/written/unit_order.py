"""The order in which the units of a plan are computed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from resumerge.methods.checked_answers import is_users
from resumerge.planning.plan import Plan, Unit
from resumerge.tensors import Merged, Spilled, stored_in


def order_of_units(plan: Plan) -> Sequence[int]:
    """Return the numbers of a plan's units in the order in which they are computed.

    Without a sweep, this is the order of the plan. In a sweep, units that share a stored tensor
    form a group and follow each other. Units that are connected through other units, like
    overlapping windows of checkpoints, also form one group. Within a group, units that read exactly
    the same tensors follow each other. Among these, units that need the same statistics follow each
    other.
    """
    if not plan.variants:
        return range(len(plan.units))
    groups, first_unit_of = _Groups(), dict[Hashable, int]()
    equal_units = []
    for unit in plan.units:
        leaves = tuple(stored_in(unit.expression))
        for leaf in leaves:
            groups.join(first_unit_of.setdefault(leaf, unit.number), unit.number)
        keys = (leaves, _statistics_key(unit))
        equal_units.append([first_unit_of.setdefault(key, unit.number) for key in keys])
    sort_keys = (
        (groups.first(unit.number), *equal_units[unit.number], unit.number) for unit in plan.units
    )
    return [number for *_, number in sorted(sort_keys)]


def have_same_reads(one: Unit, other: Unit) -> bool:
    """Return whether the blocks of two units can be computed from one reading of the sources.

    Both units must be computed from the same tensors of models, and must need the same statistics
    or none. Units with a user's method are excluded, because the method may change its inputs.
    """
    first_expression, second_expression = one.expression, other.expression
    return (
        isinstance(first_expression, Merged)
        and isinstance(second_expression, Merged)
        and first_expression.reads_as(second_expression)
        and one.block_elements == other.block_elements == first_expression.block_elements
        and not (is_users(first_expression.method) or is_users(second_expression.method))
        and not any(isinstance(node, Merged | Spilled) for node in [*first_expression.nodes()][:-1])
        and _statistics_of_blocks(one) == _statistics_of_blocks(other)
    )


def _statistics_of_blocks(unit: Unit) -> Hashable:
    """Return a key of a unit's statistics.

    The key is None if the unit needs no statistics. It is the unit's number if the unit has a
    single block, since its statistics are then not shared.
    """
    merged = unit.expression
    if not isinstance(merged, Merged) or not merged.needs_statistics:
        return None
    return merged.statistics_key if unit.blocks > 1 else unit.number


class _Groups:
    """Disjoint groups of numbers (union-find), each identified by its smallest number."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}

    def first(self, number: int) -> int:
        """Return the smallest number in the group of a number."""
        while (before := self._before.get(number, number)) != number:
            self._before[number] = self._before.get(before, before)
            number = before
        return number

    def join(self, one: int, other: int) -> None:
        """Join the groups of two numbers into one."""
        low, high = sorted((self.first(one), self.first(other)))
        self._before[high] = low


def _statistics_key(unit: Unit) -> Hashable:
    return unit.expression.statistics_key if isinstance(unit.expression, Merged) else unit.number
