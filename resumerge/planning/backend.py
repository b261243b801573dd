"""What the kernels compute, and what needs torch."""

from __future__ import annotations

from resumerge.planning.plan import Plan
from resumerge.tensors import Adapted, Computed, Merged


def needs_torch(plan: Plan) -> bool:
    """Whether torch has to be loaded: it takes a second, and 200 MB."""
    return computes_with_torch(plan) or any(isinstance(node, Adapted) for node in plan.nodes())


def computes_with_torch(plan: Plan) -> bool:
    """Whether a method or a step computes with torch, which it can do on a GPU."""
    return any(
        node.uses_torch if isinstance(node, Merged) else "torch" in node.step.libraries
        for node in plan.nodes()
        if isinstance(node, (Merged, Computed))
    )
