"""The choice of the results of stages that are written to scratch files.

The others are computed again each time that they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum

from resumerge.planning.plan import Plan
from resumerge.tensors import Computed, Merged, Spilled, Tensor
from resumerge.tensors.target import RUN_BYTES

READ_MS, WRITE_MS = 0.25, 0.7
"""CPU time for a MiB that is read from, or written to, the page cache (measured)."""

_MIB = 1 << 20
_RUN = RUN_BYTES // 4
"""Elements that are read at once, unless a block is larger."""


class Materialize(Enum):
    """The ways to choose the results of stages that are written to scratch files."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def with_spilled(plan: Plan, how: Materialize) -> Plan:
    """Return the plan with results of stages spilled where that is quicker than computing again."""
    results = {
        unit.expression: unit.block_elements
        for stage in plan.stages
        for unit in stage.units
        if any(isinstance(node, Merged) for node in unit.expression.nodes())
    }
    if how is Materialize.NEVER or not results:
        return plan
    choice = _always if how is Materialize.ALWAYS else _where_quicker
    units = tuple(
        replace(unit, expression=_spilled(unit.expression, choice(unit.expression, results)))
        for unit in plan.units
    )
    return replace(plan, units=units)


Results = dict[Tensor, int]
"""What stages compute, with the elements of a block of each."""


def _always(root: Tensor, results: Results) -> Results:
    return {node: size for node, size in results.items() if node is not root}


def _where_quicker(root: Tensor, results: Results) -> Results:
    """Decide from the root on, since what is spilled reads what it is computed from only once."""
    passes: Counter[Tensor] = Counter({root: 1})
    at_once = {root: _read_at_once(root, _RUN)}
    cost = _cost_of_reading()
    chosen: Results = {}
    for node in _consumers_first(root):
        elements = at_once.get(node, _RUN)  # what a step alone has read is read no more
        times = passes[node] * _parts_of_a_block(node, elements)
        if node in results and node.numel > min(results[node], _RUN):
            mib = node.nbytes / _MIB
            if (times - 1) * cost(node) > mib * (WRITE_MS + passes[node] * READ_MS):
                chosen[node], times = results[node], 1
        wanted = _read_at_once(node, elements)
        for child in _operands(node):
            passes[child] += times + _scans(node)
            at_once[child] = min(at_once.get(child, wanted), wanted)
    return chosen


def _read_at_once(tensor: Tensor, elements: int) -> int:
    """Return how many elements of its operands a tensor reads where so many of it are read."""
    return max(_RUN, tensor.block_elements) if isinstance(tensor, Merged) else elements


def _parts_of_a_block(tensor: Tensor, elements: int) -> int:
    """Return how often a block is computed where so many elements are read at once.

    A method of whole matrices (`MergeMethod.whole_tensor`) computes the matrix for each part of it.
    """
    if not isinstance(tensor, Merged):
        return 1
    return -(-tensor.block_elements // elements)


def _operands(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the reads of a tensor while blocks are computed: none if a step has read before."""
    return () if isinstance(tensor, Computed) else tensor.children()


def _scans(tensor: Tensor) -> int:
    """Return how often the operands are read before the first block; what was found is held."""
    if not isinstance(tensor, Merged):
        return 0
    return tensor.merge_method.passes(tensor.context) - 1


def _cost_of_reading() -> Callable[[Tensor], float]:
    """Return a function of the milliseconds that one core takes to read all of a tensor once.

    The tensor is computed or stored.
    """
    known: dict[Tensor, float] = {}

    def cost(tensor: Tensor) -> float:
        if tensor not in known:
            children = _operands(tensor)
            own = 0.0 if children else READ_MS * tensor.nbytes / _MIB
            own += tensor.own_milliseconds / _MIB
            if isinstance(tensor, Merged):
                passes = tensor.merge_method.passes(tensor.context)
                spent = tensor.merge_method.cost.milliseconds * len(children) / passes
                own += spent * tensor.numel / _MIB
            known[tensor] = own + sum(map(cost, children))
        return known[tensor]

    return cost


def _consumers_first(root: Tensor) -> Iterator[Tensor]:
    """Yield every node once, after all that are computed from it."""
    return reversed(dict.fromkeys(root.nodes()))


def _spilled(root: Tensor, chosen: Results) -> Tensor:
    """Return the tree with these nodes spilled; what is used several times stays one tensor."""
    changed: dict[Tensor, Tensor] = {}

    def change(tensor: Tensor) -> Tensor:
        if tensor not in changed:
            children = _operands(tensor)
            others = tuple(map(change, children))
            same = all(other is child for other, child in zip(others, children))
            found = tensor if same else tensor.with_children(others)
            changed[tensor] = Spilled.of(found, chosen[tensor]) if tensor in chosen else found
        return changed[tensor]

    return change(root)
