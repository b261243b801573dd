"""What a merge will take, from the plan alone: memory, disk, download, time."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.methods import METHODS
from resumerge.plan.model import Plan, Unit
from resumerge.plan.planner import work_of
from resumerge.sources.dtypes import BITS

BASE_RSS = 300_000_000
"""Bytes that the process takes besides its blocks: libraries, of which torch takes most, counts of
a selection, and what the allocator keeps (measured: 255 to 290 MB, by method)."""

WIDE_BYTES = 16
"""An element of two vectors in float64, which reductions are computed in."""

COMPANION_BYTES = 30_000_000
"""Bytes kept free for tokenizer, configs and the ledger."""

BYTES_PER_SECOND = 800e6
"""Read plus written, in one second, by one core that merges elementwise (a modest disk less)."""


@dataclass(frozen=True)
class Estimate:
    """Bytes and seconds.

    Args:
        peak_rss: of the merging process.
        disk: to be free in the output's folder.
        download: still to be fetched.
        cached: of the sources' files, already on this machine.
    """

    peak_rss: int
    disk: int
    download: int
    download_files: int
    cached: int
    seconds: float
    basis: str


def estimate(plan: Plan, threads: int) -> Estimate:
    """Estimate a plan."""
    download = files = cached = read = 0
    for number, source in enumerate(plan.sources):
        needed = plan.bytes_needed(number)
        read += sum(needed.values())
        for name in needed:
            file = source.files[name]
            if file.present:
                cached += file.size
            else:
                download, files = download + file.size, files + 1
    seconds = (read + plan.output_bytes) / (BYTES_PER_SECOND * threads)
    return Estimate(
        peak_rss=BASE_RSS + held_bytes(plan) + threads * thread_bytes(plan),
        disk=disk_needed(plan),
        download=download,
        download_files=files,
        cached=cached,
        seconds=round(seconds + 2.0, 1),
        basis=f"{BYTES_PER_SECOND / 1e6:.0f} MB/s a core, elementwise, files on a fast local disk",
    )


def disk_needed(plan: Plan) -> int:
    """Bytes to be free where the output goes."""
    return plan.output_bytes + COMPANION_BYTES


def held_bytes(plan: Plan) -> int:
    """The most that a method's reductions hold for one tensor."""
    return max(
        (
            METHODS[unit.expression.method].held_bytes(
                work_of(unit.name, unit.shape, unit.expression, plan.seed)
            )
            for unit in plan.units
            if unit.expression.method != "copy" and unit.blocks > 1
        ),
        default=0,
    )


def thread_bytes(plan: Plan) -> int:
    """The largest working set of one thread, in bytes."""
    return max((_unit_bytes(unit) for unit in plan.units), default=0)


def _unit_bytes(unit: Unit) -> int:
    elements = min(unit.numel, unit.grain)
    operands = unit.expression.operands
    raw = sum(BITS[operand.tensor.dtype] // 8 for operand in operands)
    if unit.expression.method == "copy":
        return elements * raw
    scratch = METHODS[unit.expression.method].scratch
    wide = 4 * (2 * len(operands) + scratch) + WIDE_BYTES
    return elements * (raw + wide + BITS[unit.dtype] // 8)
