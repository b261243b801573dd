"""How long a merge takes: what there is to read, write and compute, at the machine's speed."""

from __future__ import annotations

from resumerge.host.speed import Speed
from resumerge.planning.backend import needs_torch
from resumerge.planning.estimates.memory import steps_of_plan
from resumerge.planning.plan import Plan, Unit
from resumerge.planning.stage_results.spilled import READ_MS, WRITE_MS
from resumerge.sizes import show_size
from resumerge.tensors import Merged, Spilled, Tensor, spilled_in

REFERENCE_COMPUTE = 5.3e9
"""Elements in a second that `probe` found on the machine that the costs were measured on."""

START_SECONDS, TORCH_SECONDS = 0.35, 1.5
"""CPU time until a merge begins, and for loading torch where it is needed."""


def merge_seconds(plan: Plan, threads: int, speed: Speed) -> tuple[float, str]:
    """Seconds for all of it, without downloads, and what that rests on.

    Reading, computing and writing go on at once, so the slowest of them decides. Steps come before.
    """
    scale = REFERENCE_COMPUTE / speed.compute if speed.compute else 1.0
    milliseconds = sum(_milliseconds(unit.expression) + _spilling(unit) for unit in plan.units)
    compute = scale * milliseconds / (1 << 20) / 1000 / threads
    reads = sum(sum(plan.bytes_needed(number).values()) for number in range(len(plan.sources)))
    read = reads / speed.read if speed.read else 0.0
    write = plan.output_bytes / speed.write if speed.write else 0.0
    before = scale * sum(step.seconds(threads) for step in steps_of_plan(plan))
    start = scale * (START_SECONDS + TORCH_SECONDS * needs_torch(plan))
    blocks = {"reading": read, "writing": write, "computing": compute}
    parts = {**blocks, "making gates": before}
    core = (
        f", a core is {1 / scale:.1f} times as fast as the one in docs/benchmarks.md"
        if speed.compute
        else ""
    )
    basis = (
        f"measured now: reading {_rate(speed.read)}, writing {_rate(speed.write)}{core}; "
        f"{max(parts, key=lambda name: parts[name])} takes longest"
    )
    return round(start + before + max(blocks.values()), 1), basis


def _milliseconds(tensor: Tensor) -> float:
    """Of one core, for 2^20 elements; an operand is computed again in each pass of its method.

    What is spilled is read here; `_spilling` is what it takes to compute and to write it.
    """
    if isinstance(tensor, Spilled):
        return tensor.nbytes * READ_MS
    if not isinstance(tensor, Merged):
        return sum(map(_milliseconds, tensor.children()))
    own = tensor.numel * len(tensor.operands) * tensor.merge_method.cost.milliseconds
    within = sum(map(_milliseconds, tensor.operands))
    return own + (tensor.merge_method.passes(tensor.context) * within if within else 0)


def _spilling(unit: Unit) -> float:
    """Milliseconds as above, to fill the scratch files of a unit."""
    return sum(
        _milliseconds(spilled.tensor) + spilled.nbytes * WRITE_MS
        for spilled in spilled_in(unit.expression)
    )


def computes(plan: Plan) -> bool:
    """Whether a plan computes anything, rather than only copying bytes."""
    merges = any(isinstance(unit.expression, Merged) for unit in plan.units)
    return merges or any(step.seconds(1) for step in steps_of_plan(plan))


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{show_size(rate)}/s"
