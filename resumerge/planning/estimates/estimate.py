"""What a merge will take, from the plan alone: memory, disk, download, time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from resumerge.host.speed import Speed
from resumerge.planning.estimates.memory import MemoryNeed, memory_need, whole_tensors
from resumerge.planning.estimates.streaming import streamed_bytes
from resumerge.planning.estimates.time import merge_seconds
from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.planning.stage_results.spilled import spilled_bytes

COMPANION_BYTES = 30_000_000
"""Bytes kept free for tokenizer, configs and the ledger."""


@dataclass(frozen=True)
class Estimate:
    """Bytes and seconds.

    Args:
        memory: of the merging process.
        disk: to be free in the output's folder.
        download: still to be fetched: downloads, and what is streamed.
        streamed: of these, what is read by ranges and not stored, by number of the source.
        cached: of the sources' files, already on this machine.
        largest: the unit with the most bytes.
        seconds: of the merge, without downloads.
        basis: what the time rests on.
        notes: what a person should know, a line each.
    """

    memory: MemoryNeed
    disk: int
    download: int
    download_files: int
    streamed: Mapping[int, int]
    cached: int
    largest: Unit
    seconds: float
    basis: str
    notes: tuple[str, ...] = ()

    @property
    def peak_rss(self) -> int:
        """Bytes of RSS."""
        return self.memory.peak_rss


def estimate(plan: Plan, threads: int, speed: Speed, mirror: str | None = None) -> Estimate:
    """Estimate a plan, on a machine of that speed.

    Args:
        mirror: address of the run's mirror, if it has one.
    """
    download = files = cached = 0
    streamed = streamed_bytes(plan)
    for number, source in enumerate(plan.sources):
        needed = plan.bytes_needed(number)
        for name in needed:
            file = source.files[name]
            if file.present:
                cached += file.size
                continue
            files += 1
            download += streamed[number, name] if source.is_streamed(name) else file.size
    seconds, basis = merge_seconds(plan, threads, speed)
    return Estimate(
        memory=memory_need(plan, threads, mirror),
        disk=disk_needed(plan),
        download=download,
        download_files=files,
        streamed=_by_source(streamed),
        cached=cached,
        largest=max(plan.units, key=lambda unit: unit.nbytes),
        seconds=seconds,
        basis=basis,
        notes=tuple(filter(None, [whole_tensors(plan)])),
    )


def _by_source(streamed: Mapping[SourceFileKey, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for (number, _), nbytes in streamed.items():
        found[number] = found.get(number, 0) + nbytes
    return found


def disk_needed(plan: Plan) -> int:
    """Bytes to be free where the output goes."""
    return plan.output_bytes + spilled_bytes(plan) + COMPANION_BYTES


def largest_file(plan: Plan) -> Path | None:
    """The largest of the files that are read and are on this machine already."""
    files = [
        (file.size, source.path(name))
        for number, source in enumerate(plan.sources)
        for name in plan.bytes_needed(number)
        if (file := source.files[name]).present
    ]
    return max(files)[1] if files else None
