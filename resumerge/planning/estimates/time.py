"""The estimate of a merge's time: for reading, writing and computing at a given speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from resumerge.host.speed import Speed
from resumerge.planning.plan import Unit
from resumerge.planning.stage_results.spilled import READ_MS, WRITE_MS
from resumerge.sizes import show_size
from resumerge.tensors import Merged, Quantised, Spilled, Step, Tensor

REFERENCE_COMPUTE = 5.3e9
"""Elements per second that `measure_speed` returns on the machine where costs were measured."""

START_SECONDS, TORCH_SECONDS = 0.35, 1.5
"""Seconds of CPU time until a merge begins, and for importing torch if the merge needs it."""


@dataclass(frozen=True)
class TimeEstimate:
    """The work of a merge that takes time, on any machine.

    Args:
        read: bytes read from the sources' files.
        write: bytes that are written to the output's shards.
        milliseconds: time in which one core of the machine where costs were measured computes all
            blocks, in milliseconds times 2^20, because costs are stated for 2^20 elements.
        steps: the steps, which are computed before the blocks.
        needs_torch: whether torch has to be imported.
        computes: whether any unit or step is computed; False if all units are copied.
    """

    read: int
    write: int
    milliseconds: float
    steps: frozenset[Step]
    needs_torch: bool
    computes: bool

    def seconds(self, threads: int, speed: Speed) -> tuple[float, str]:
        """Return the seconds of the merge, without downloads, and a text on their basis.

        Blocks are read, computed and written at the same time, so the slowest of the three
        determines the time. Steps come before the blocks.
        """
        scale = REFERENCE_COMPUTE / speed.compute if speed.compute else 1.0
        compute_seconds = scale * self.milliseconds / (1 << 20) / 1000 / threads
        read_seconds = self.read / speed.read if speed.read else 0.0
        write_seconds = self.write / speed.write if speed.write else 0.0
        step_seconds = scale * sum(step.seconds(threads) for step in self.steps)
        start_seconds = scale * (START_SECONDS + TORCH_SECONDS * self.needs_torch)
        block_seconds = {
            "reading": read_seconds,
            "writing": write_seconds,
            "computing": compute_seconds,
        }
        seconds_by_part = {**block_seconds, "making gates": step_seconds}
        basis = (
            f"measured now: reading {_rate(speed.read)}, writing {_rate(speed.write)}; "
            f"{max(seconds_by_part, key=lambda name: seconds_by_part[name])} takes longest"
        )
        return round(start_seconds + step_seconds + max(block_seconds.values()), 1), basis


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
        """Return the time estimate of a plan, after all its units were added."""
        computes = self.merges or any(step.seconds(1) for step in steps)
        return TimeEstimate(read, write, self.milliseconds, steps, needs_torch, computes)


def _milliseconds(tensor: Tensor) -> float:
    """Return one core's time to compute a tensor, in the unit of `TimeEstimate.milliseconds`.

    Every pass of a method computes its operands again. A quantised weight with a factor is computed
    twice. A spilled tensor is only read.
    """
    if isinstance(tensor, Spilled):
        return tensor.nbytes * READ_MS
    if not isinstance(tensor, Merged):
        operand_milliseconds = sum(map(_milliseconds, tensor.children()))
        passes = 1 + (isinstance(tensor, Quantised) and bool(tensor.form.whole))
        return tensor.own_milliseconds + passes * operand_milliseconds
    method_milliseconds = (
        tensor.numel * len(tensor.operands) * tensor.merge_method.cost.milliseconds
    )
    operand_milliseconds = sum(map(_milliseconds, tensor.operands))
    return method_milliseconds + (
        tensor.merge_method.passes(tensor.context) * operand_milliseconds
        if operand_milliseconds
        else 0
    )


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{show_size(rate)}/s"
