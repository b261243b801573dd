"""What the compiled kernels compute, and what needs torch."""

from __future__ import annotations

from resumerge.methods import METHODS, BlockCost
from resumerge.native import CODES, instruction_set
from resumerge.planning.plan import Operand, Plan, Unit
from resumerge.sources.dtypes import FLOATS


def needs_torch(plan: Plan, device: str = "cpu") -> bool:
    """Whether torch has to be loaded: it takes a second, and 200 MB."""
    if any(source.kind == "lora" for source in plan.sources):
        return True
    return any(
        unit.expression.method != "copy" and not (device == "cpu" and is_compiled(unit, plan.seed))
        for unit in plan.units
    )


def is_compiled(unit: Unit, seed: int) -> bool:
    """Whether the compiled kernels compute a unit on the CPU. torch would give the same bits."""
    if instruction_set() is None or unit.expression.method == "copy":
        return False
    cast = unit.expression.cast
    if FLOATS.get(unit.dtype) not in CODES or not (cast is None or cast in CODES):
        return False
    context = unit.context(seed)
    return METHODS[unit.expression.method].compiled(context) and all(
        _is_plain(operand) for operand in unit.expression.operands
    )


def block_cost(unit: Unit, seed: int) -> BlockCost:
    """What a block of a unit costs that a method computes, on the CPU."""
    method = METHODS[unit.expression.method]
    return method.compiled_cost if is_compiled(unit, seed) else method.torch_cost


def rounds_operand(operand: Operand, cast: str | None) -> bool:
    """Whether the recipe's dtype changes what the compiled kernels read of an operand."""
    return cast not in (None, "float32", FLOATS[operand.tensor.dtype])


def _is_plain(operand: Operand) -> bool:
    return operand.rows is None and FLOATS.get(operand.tensor.dtype) in CODES
