"""What the kernels compute, and what needs torch."""

from __future__ import annotations

from resumerge.methods import METHODS, KernelMethod
from resumerge.planning.plan import Operand, Plan, Unit
from resumerge.sources.dtypes import FLOATS


def needs_torch(plan: Plan) -> bool:
    """Whether torch has to be loaded: it takes a second, and 200 MB."""
    return any(source.kind == "lora" for source in plan.sources) or computes_with_torch(plan)


def computes_with_torch(plan: Plan) -> bool:
    """Whether torch computes a unit, which it can do on a GPU."""
    return any(uses_torch(unit) for unit in plan.units)


def uses_torch(unit: Unit) -> bool:
    """Whether the method of a unit computes with torch, rather than with the kernels."""
    method = unit.expression.method
    return method != "copy" and not isinstance(METHODS[method], KernelMethod)


def rounds_operand(operand: Operand, cast: str | None) -> bool:
    """Whether the recipe's dtype changes what is read of an operand."""
    return cast not in (None, "float32", "float64", FLOATS[operand.tensor.dtype])
