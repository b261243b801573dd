"""How long a merge takes: what there is to read, write and compute, at the machine's speed."""

from __future__ import annotations

from resumerge.host.speed import Speed
from resumerge.plan.model import Plan

REFERENCE_COMPUTE = 5.3e9
"""Elements in a second that `probe` found on the machine that `MILLISECONDS` was measured on."""

MILLISECONDS = {
    "copy": 0.0,
    "linear": 2.0,
    "nearswap": 1.7,
    "task_arithmetic": 2.4,
    "ram": 3.8,
    "trimmed_mean": 3.8,
    "slerp": 3.9,
    "consensus_ta": 5.7,
    "multislerp": 5.8,
    "karcher": 6.0,
    "model_stock": 6.0,
    "nuslerp": 6.3,
    "ramplus_tl": 9.4,
    "ties": 9.8,
    "sce": 10.3,
    "dare_linear": 9.0,
    "dare_ties": 10.6,
    "breadcrumbs": 14.0,
    "breadcrumbs_ties": 16.3,
    "arcee_fusion": 24.4,
    "della": 30.0,
    "della_linear": 30.0,
}
"""CPU time for 2^20 elements of each input, all passes together; docs/benchmarks.md."""
USUAL_MILLISECONDS = 6.0
"""Of a method that is not in the table."""

START_SECONDS, TORCH_SECONDS = 0.6, 1.5
"""CPU time until a merge begins, and for loading torch where it is needed."""


def merge_seconds(plan: Plan, threads: int, speed: Speed) -> tuple[float, str]:
    """Seconds for all of it, without downloads, and what that rests on.

    Reading, computing and writing go on at once, so the slowest of them decides.
    """
    scale = REFERENCE_COMPUTE / speed.compute
    elements = sum(
        unit.numel
        * len(unit.expression.operands)
        * MILLISECONDS.get(unit.expression.method, USUAL_MILLISECONDS)
        for unit in plan.units
    )
    compute = scale * elements / (1 << 20) / 1000 / threads
    reads = sum(sum(plan.bytes_needed(number).values()) for number in range(len(plan.sources)))
    read = reads / speed.read if speed.read else 0.0
    write = plan.output_bytes / speed.write if speed.write else 0.0
    computes = any(unit.expression.method != "copy" for unit in plan.units)
    start = scale * (START_SECONDS + TORCH_SECONDS * computes)
    parts = {"reading": read, "writing": write, "computing": compute}
    basis = (
        f"measured just now: reads {_rate(speed.read)}, writes {_rate(speed.write)}, "
        f"a core computes at {1 / scale:.1f} times the reference; "
        f"{max(parts, key=lambda name: parts[name])} takes longest"
    )
    return round(start + max(parts.values()), 1), basis


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate / 1e6:.0f} MB/s"
