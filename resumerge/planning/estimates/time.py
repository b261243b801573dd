"""The estimate of the time that a merge takes: reading, writing and computing at a given speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from resumerge.host.speed import Speed
from resumerge.planning.plan import Unit
from resumerge.planning.stage_results.spilled import READ_MS, WRITE_MS
from resumerge.sizes import show_size
from resumerge.tensors import Merged, Quantised, Spilled, Step, Tensor

REFERENCE_COMPUTE = 5.3e9
"""Elements a second that `measure_speed` finds on the machine where all costs were measured."""

START_SECONDS, TORCH_SECONDS = 0.35, 1.5
"""Seconds of CPU time until a merge begins, and for importing torch if it is needed."""


@dataclass(frozen=True)
class TimeEstimate:
    """The work of a merge that takes time, on any machine.

    Args:
        read: bytes of the sources' files.
        write: bytes of the output.
        milliseconds: time to compute all blocks, of one core of the machine that costs were
            measured on; in milliseconds times 2^20, because costs are for 2^20 elements.
        steps: the steps, which are computed before the blocks.
        needs_torch: whether torch has to be imported.
        computes: whether a unit or a step is computed, rather than all units copied.
    """

    read: int
    write: int
    milliseconds: float
    steps: frozenset[Step]
    needs_torch: bool
    computes: bool

    def seconds(self, threads: int, speed: Speed) -> tuple[float, str]:
        """Return the seconds of the merge, without downloads, and a text on their basis.

        Reading, computing and writing of blocks go on at the same time, so the slowest of them
        decides. Steps come before the blocks.
        """
        scale = REFERENCE_COMPUTE / speed.compute if speed.compute else 1.0
        compute = scale * self.milliseconds / (1 << 20) / 1000 / threads
        read = self.read / speed.read if speed.read else 0.0
        write = self.write / speed.write if speed.write else 0.0
        before = scale * sum(step.seconds(threads) for step in self.steps)
        start = scale * (START_SECONDS + TORCH_SECONDS * self.needs_torch)
        blocks = {"reading": read, "writing": write, "computing": compute}
        parts = {**blocks, "making gates": before}
        basis = (
            f"measured now: reading {_rate(speed.read)}, writing {_rate(speed.write)}; "
            f"{max(parts, key=lambda name: parts[name])} takes longest"
        )
        return round(start + before + max(blocks.values()), 1), basis


@dataclass
class TimeCounter:
    """A counter of the time that the units of a plan take to compute."""

    milliseconds: float = 0.0
    merges: bool = False

    def add(self, unit: Unit, nodes: Iterable[Tensor]) -> None:
        """Add the next unit, with the nodes of its expression."""
        self.milliseconds += _milliseconds(unit.expression) + sum(
            _milliseconds(node.tensor) + node.nbytes * WRITE_MS
            for node in dict.fromkeys(nodes)
            if isinstance(node, Spilled)
        )
        self.merges = self.merges or isinstance(unit.expression, Merged)

    def result(
        self, steps: frozenset[Step], read: int, write: int, *, needs_torch: bool
    ) -> TimeEstimate:
        """Return the time of a plan, once all its units are added."""
        computes = self.merges or any(step.seconds(1) for step in steps)
        return TimeEstimate(read, write, self.milliseconds, steps, needs_torch, computes)


def _milliseconds(tensor: Tensor) -> float:
    """Return the time that a tensor takes one core, in the unit of `TimeEstimate.milliseconds`.

    An operand is computed again in each pass of its method, and a weight once more for its
    quantisation's factor. A spilled tensor is only read here.
    """
    if isinstance(tensor, Spilled):
        return tensor.nbytes * READ_MS
    if not isinstance(tensor, Merged):
        within = sum(map(_milliseconds, tensor.children()))
        passes = 1 + (isinstance(tensor, Quantised) and bool(tensor.form.whole))
        return tensor.own_milliseconds + passes * within
    own = tensor.numel * len(tensor.operands) * tensor.merge_method.cost.milliseconds
    within = sum(map(_milliseconds, tensor.operands))
    return own + (tensor.merge_method.passes(tensor.context) * within if within else 0)


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{show_size(rate)}/s"
