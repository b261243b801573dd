"""How much memory a merge takes, from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.methods import METHODS
from resumerge.plan.model import Plan, Unit
from resumerge.plan.planner import work_of
from resumerge.sources.dtypes import BITS

BASE_RSS = 262_000_000
"""Bytes that the process takes besides its blocks with torch loaded (measured; another build of
torch takes another amount, which a run measures before it computes)."""

COPYING_RSS = 62_000_000
"""The same of a plan that copies bytes, which loads no torch."""

WIDE_BYTES = 16
"""An element of two vectors in float64, which reductions are computed in."""


@dataclass(frozen=True)
class Need:
    """Bytes of RSS that a merge takes, and what of.

    Args:
        base: the process without its blocks.
        held: what a scan over a tensor holds until it ends.
        thread: the largest working set of one thread.
        threads: how many there are.
        traffic: bytes read and written, which the page cache would like to keep.
    """

    base: int
    held: int
    thread: int
    threads: int
    traffic: int

    @property
    def peak_rss(self) -> int:
        """With all threads."""
        return self.base + self.held + self.threads * self.thread

    @property
    def least_rss(self) -> int:
        """With one block in flight."""
        return self.base + self.held + self.thread


def memory_need(plan: Plan, threads: int) -> Need:
    """What a plan takes with so many threads."""
    computes = any(unit.expression.method != "copy" for unit in plan.units)
    reads = sum(sum(plan.bytes_needed(number).values()) for number in range(len(plan.sources)))
    return Need(
        base=BASE_RSS if computes else COPYING_RSS,
        held=max((_held_bytes(unit, plan.seed) for unit in plan.units), default=0),
        thread=max((_thread_bytes(unit) for unit in plan.units), default=0),
        threads=threads,
        traffic=reads + plan.output_bytes,
    )


def _held_bytes(unit: Unit, seed: int) -> int:
    if unit.expression.method == "copy" or unit.blocks == 1:
        return 0
    work = work_of(unit.name, unit.shape, unit.expression, seed)
    return METHODS[unit.expression.method].held_bytes(work)


def _thread_bytes(unit: Unit) -> int:
    elements = min(unit.numel, unit.grain)
    operands = unit.expression.operands
    raw = sum(BITS[operand.tensor.dtype] // 8 for operand in operands)
    if unit.expression.method == "copy":
        return elements * raw
    scratch = METHODS[unit.expression.method].scratch
    wide = 4 * (2 * len(operands) + scratch) + WIDE_BYTES
    return elements * (raw + wide + BITS[unit.dtype] // 8)
