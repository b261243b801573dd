"""The estimate of a plan: the memory, disk space, downloads and time of its merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from resumerge.host.machine import FREE_FOR_COMPANIONS
from resumerge.host.speed import Speed
from resumerge.planning.estimates.memory import MemoryCounter, MemoryEstimate, MemoryNeed
from resumerge.planning.estimates.reads_of_files import FileReads
from resumerge.planning.estimates.time import TimeCounter, TimeEstimate
from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.sizes import counted, show_size
from resumerge.tensors import Computed, Step


@dataclass(frozen=True)
class Estimate:
    """The cost of a plan on any machine, in bytes unless stated otherwise.

    Args:
        output: bytes of all shards.
        tensors: the number of tensors in all shards.
        shards_here: the most bytes of shards in the output's folder at one time.
        largest: the unit with the most bytes.
        largest_block: the most bytes of output in one block; at least 1, because limits are divided
            by it.
        scratch: the most bytes of the scratch files at one time.
        read: bytes that are read from each weight file, counting each tensor once.
        missing: the files of `read` that are not on this machine: downloads, and streamed files.
        streamed: bytes that are fetched from each streamed file. A range counts once for each time
            that it is read.
        download: bytes of `missing` that are still to be fetched.
        cached: bytes of the files of `read` that are on this machine.
        steps: the steps, which are computed before the blocks.
        uses_torch: whether a method or a step computes with torch.
        memory: the figures that the memory follows from, for any number of threads.
        time: the figures that the time follows from, for any number of threads and any speed of the
            machine.
        notes: messages for the user, one line each.
    """

    output: int
    tensors: int
    shards_here: int
    largest: Unit
    largest_block: int
    scratch: int
    read: Mapping[SourceFileKey, int]
    missing: tuple[SourceFileKey, ...]
    streamed: Mapping[SourceFileKey, int]
    download: int
    cached: int
    steps: frozenset[Step]
    uses_torch: bool
    memory: MemoryEstimate
    time: TimeEstimate
    notes: tuple[str, ...]

    @property
    def disk(self) -> int:
        """The bytes that must be free on the disk of the output's folder."""
        scratch = self.scratch if self.shards_here else 0  # scratch files are beside the shards
        return self.shards_here + scratch + FREE_FOR_COMPANIONS

    def read_of(self, source: int) -> dict[str, int]:
        """Return the bytes that are read from each file of a source, by the file's name."""
        return {name: nbytes for (number, name), nbytes in self.read.items() if number == source}

    def streamed_of(self, source: int) -> int:
        """Return the bytes that are streamed from a source."""
        return sum(nbytes for (number, _), nbytes in self.streamed.items() if number == source)

    def on_machine(self, threads: int, speed: Speed) -> Prediction:
        """Return the cost of the merge with a number of threads, at the speed of a machine."""
        return Prediction(self, self.memory.need(threads), *self.time.seconds(threads, speed))


@dataclass(frozen=True)
class Prediction:
    """The cost of a merge on one machine.

    Args:
        need: the memory that the merging process needs with the number of threads that was asked
            for.
        seconds: seconds of the merge, without downloads.
        basis: text for the user, on the measurements that the time is based on.
    """

    estimate: Estimate
    need: MemoryNeed
    seconds: float
    basis: str


def estimate(plan: Plan, mirror: str | None = None, most_shards: int | None = None) -> Estimate:
    """Estimate the cost of a plan, by one pass over its units.

    Args:
        plan: the plan of a run, of one of its stages, or of the single shard of a cluster's task.
        mirror: address of the run's mirror; None if it has no mirror.
        most_shards: the most shards in the output's folder at one time, if all other shards are
            only in the mirror; None if all shards are in the folder.
    """
    file_reads = FileReads(plan.sources)
    memory = MemoryCounter()
    time = TimeCounter()
    all_steps: set[Step] = set()
    uses_torch, largest_unit, largest_block, tensor_count = False, plan.units[0], 1, 0
    for unit in plan.units:
        nodes = list(unit.expression.nodes())
        file_reads.add(unit, nodes)
        memory.add(unit, nodes)
        time.add(unit, nodes)
        tensor_count += len(unit.tensors)
        all_steps |= {node.step for node in nodes if isinstance(node, Computed)}
        uses_torch = uses_torch or any(node.uses_torch for node in nodes)
        largest_unit = max(largest_unit, unit, key=lambda unit: unit.nbytes)
        largest_block = max(largest_block, unit.bytes_of(range(1)))
    steps, read_bytes = frozenset(all_steps), file_reads.read
    streamed_bytes = file_reads.streamed(steps)
    source_files = {(number, name): plan.sources[number].files[name] for number, name in read_bytes}
    missing_files = tuple(key for key, file in source_files.items() if not file.present)
    total_read_bytes = sum(read_bytes.values())
    return Estimate(
        output=plan.output_bytes,
        tensors=tensor_count,
        shards_here=sum(sorted((s.nbytes for s in plan.shards), reverse=True)[:most_shards]),
        largest=largest_unit,
        largest_block=largest_block,
        scratch=max(memory.scratch.most, plan.output_bytes * plan.is_undecided),
        read=read_bytes,
        missing=missing_files,
        streamed=streamed_bytes,
        download=sum(streamed_bytes.get(key, source_files[key].size) for key in missing_files),
        cached=sum(file.size for file in source_files.values() if file.present),
        steps=steps,
        uses_torch=uses_torch,
        memory=memory.result(
            plan, steps, streamed_bytes, total_read_bytes + plan.output_bytes, mirror
        ),
        time=time.result(
            steps, total_read_bytes, plan.output_bytes, needs_torch=memory.needs_torch
        ),
        notes=tuple(_notes(memory)),
    )


def _notes(memory: MemoryCounter) -> Iterator[str]:
    if memory.spilled:
        yield (
            f"{counted(memory.spilled, 'tensor')} of stages are written to scratch files and read "
            f"from there, at most {show_size(memory.scratch.most)} at once, which takes less time "
            "than to compute them again"
        )
    if memory.whole is not None:
        nbytes, _, method, name = memory.whole
        yield (
            f"{method} computes on whole tensors: {name} alone takes {show_size(nbytes)} of memory"
        )


def largest_file(plan: Plan, estimate: Estimate) -> Path | None:
    """Return the largest file on this machine that the merge reads; None if there is none."""
    sized_paths = [
        (plan.sources[number].files[name].size, plan.sources[number].path(name))
        for number, name in estimate.read.keys() - set(estimate.missing)
    ]
    return max(sized_paths)[1] if sized_paths else None
