"""The choice of the stage results that are spilled: written to scratch files.

All other results of stages are computed again each time that they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum

from resumerge.planning.plan import Plan
from resumerge.tensors import Computed, Merged, Spilled, Tensor
from resumerge.tensors.target import BLOCK_RUN_BYTES

READ_MS, WRITE_MS = 0.25, 0.7
"""Milliseconds of CPU time to read a MiB from, or write it to, the page cache (measured)."""

_MIB = 1 << 20
_BLOCK_RUN = BLOCK_RUN_BYTES // 4
"""The number of elements that are read at once if a block is not larger."""


class Materialize(Enum):
    """The modes of choosing the stage results that are written to scratch files."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def with_spilled(plan: Plan, how: Materialize) -> Plan:
    """Return the plan with stage results spilled; with `AUTO`, those where it saves time."""
    results = {
        unit.expression: unit.block_elements
        for stage in plan.stages
        for unit in stage.units
        if any(isinstance(node, Merged) for node in unit.expression.nodes())
    }
    if how is Materialize.NEVER or not results:
        return plan
    choose = _always if how is Materialize.ALWAYS else _where_quicker
    units = tuple(
        replace(unit, expression=_spilled(unit.expression, choose(unit.expression, results)))
        for unit in plan.units
    )
    return replace(plan, units=units)


Results = dict[Tensor, int]
"""Tensors that stages compute, each with the number of elements in its blocks."""


def _always(root: Tensor, results: Results) -> Results:
    return {node: size for node, size in results.items() if node is not root}


def _where_quicker(root: Tensor, results: Results) -> Results:
    """Return the results that are quicker to spill than to compute again.

    Nodes are decided in order, starting at the root, because a spilled tensor reads its operands
    only once.
    """
    passes: Counter[Tensor] = Counter({root: 1})
    elements_at_once = {root: _read_at_once(root, _BLOCK_RUN)}
    cost_of = _cost_of_reading()
    chosen_results: Results = {}
    for node in _consumers_first(root):
        # A node that only a step reads has no entry.
        elements = elements_at_once.get(node, _BLOCK_RUN)
        computations = passes[node] * _parts_of_a_block(node, elements)
        if node in results and node.numel > min(results[node], _BLOCK_RUN):
            mib = node.nbytes / _MIB
            if (computations - 1) * cost_of(node) > mib * (WRITE_MS + passes[node] * READ_MS):
                chosen_results[node], computations = results[node], 1
        elements_of_operands = _read_at_once(node, elements)
        for child in _operands(node):
            passes[child] += computations + _scans(node)
            elements_at_once[child] = min(
                elements_at_once.get(child, elements_of_operands), elements_of_operands
            )
    return chosen_results


def _read_at_once(tensor: Tensor, elements: int) -> int:
    """Return the number of elements read from each operand when `elements` of a tensor are read."""
    return max(_BLOCK_RUN, tensor.block_elements) if isinstance(tensor, Merged) else elements


def _parts_of_a_block(tensor: Tensor, elements: int) -> int:
    """Return the number of times that a block is computed if `elements` are read at once.

    A method of whole matrices (`MergeMethod.whole_tensor`) computes the whole matrix again for each
    part that is read.
    """
    if not isinstance(tensor, Merged):
        return 1
    return -(-tensor.block_elements // elements)


def _operands(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors that are read to compute a tensor's blocks; none for a step's result."""
    return () if isinstance(tensor, Computed) else tensor.children()


def _scans(tensor: Tensor) -> int:
    """Return the number of times that a tensor's operands are read before its first block."""
    if not isinstance(tensor, Merged):
        return 0
    return tensor.merge_method.passes(tensor.context) - 1


def _cost_of_reading() -> Callable[[Tensor], float]:
    """Return a function from a tensor to one core's milliseconds for reading all of it once.

    The tensor may be computed or stored. The function caches its results.
    """
    costs: dict[Tensor, float] = {}

    def cost(tensor: Tensor) -> float:
        if tensor not in costs:
            children = _operands(tensor)
            milliseconds = 0.0 if children else READ_MS * tensor.nbytes / _MIB
            milliseconds += tensor.own_milliseconds / _MIB
            if isinstance(tensor, Merged):
                passes = tensor.merge_method.passes(tensor.context)
                method_milliseconds = tensor.merge_method.cost.milliseconds * len(children) / passes
                milliseconds += method_milliseconds * tensor.numel / _MIB
            costs[tensor] = milliseconds + sum(map(cost, children))
        return costs[tensor]

    return cost


def _consumers_first(root: Tensor) -> Iterator[Tensor]:
    """Yield every node once, after all nodes that are computed from it."""
    return reversed(dict.fromkeys(root.nodes()))


def _spilled(root: Tensor, chosen: Results) -> Tensor:
    """Return the tree with the chosen nodes spilled. A tensor used twice remains one object."""
    changed_tensors: dict[Tensor, Tensor] = {}

    def change(tensor: Tensor) -> Tensor:
        if tensor not in changed_tensors:
            children = _operands(tensor)
            new_children = tuple(map(change, children))
            is_same = all(new_tensor is child for new_tensor, child in zip(new_children, children))
            new_tensor = tensor if is_same else tensor.with_children(new_children)
            changed_tensors[tensor] = (
                Spilled.of(new_tensor, chosen[tensor]) if tensor in chosen else new_tensor
            )
        return changed_tensors[tensor]

    return change(root)
