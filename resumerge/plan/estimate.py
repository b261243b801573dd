"""What a merge will take, from the plan alone: memory, disk, download, time."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.plan.memory import Need, memory_need
from resumerge.plan.model import Plan

COMPANION_BYTES = 30_000_000
"""Bytes kept free for tokenizer, configs and the ledger."""

BYTES_PER_SECOND = 800e6
"""Read plus written, in one second, by one core that merges elementwise (a modest disk less)."""


@dataclass(frozen=True)
class Estimate:
    """Bytes and seconds.

    Args:
        memory: of the merging process.
        disk: to be free in the output's folder.
        download: still to be fetched.
        cached: of the sources' files, already on this machine.
    """

    memory: Need
    disk: int
    download: int
    download_files: int
    cached: int
    seconds: float
    basis: str

    @property
    def peak_rss(self) -> int:
        return self.memory.peak_rss


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
        memory=memory_need(plan, threads),
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
