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
        largest_block: bytes of the largest block of the output.
        scratch: the most bytes of the scratch files at one time.
        read: bytes that are read from each weight file, counting each tensor once.
        missing: the files of `read` that are not on this machine: downloads, and streamed files.
        streamed: bytes that are fetched from each streamed file. A range counts once for each time
            that it is read.
        download: bytes of `missing` that are still to be fetched.
        cached: bytes of the files of `read` that are on this machine.
        steps: the steps, which are computed before the blocks.
        uses_torch: whether a method or a step computes with torch.
        memory: the memory, for any number of threads.
        time: the time, for any number of threads and any speed of the machine.
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
        need: memory of the merging process.
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
        plan: the plan.
        mirror: address of the run's mirror; None if it has no mirror.
        most_shards: the most shards in the output's folder at one time, if all other shards are
            only in the mirror; None if all shards are in the folder.
    """
    files, memory, time = FileReads(plan.sources), MemoryCounter(), TimeCounter()
    all_steps: set[Step] = set()
    uses_torch, largest, largest_block, tensors = False, plan.units[0], 1, 0
    for unit in plan.units:
        nodes = list(unit.expression.nodes())
        files.add(unit, nodes)
        memory.add(unit, nodes)
        time.add(unit, nodes)
        tensors += len(unit.tensors)
        all_steps |= {node.step for node in nodes if isinstance(node, Computed)}
        uses_torch = uses_torch or any(node.uses_torch for node in nodes)
        largest = max(largest, unit, key=lambda unit: unit.nbytes)
        largest_block = max(largest_block, unit.bytes_of(range(1)))
    steps, read = frozenset(all_steps), files.read
    streamed = files.streamed(steps)
    sizes = {(number, name): plan.sources[number].files[name] for number, name in read}
    missing = tuple(key for key, file in sizes.items() if not file.present)
    traffic = sum(read.values())
    return Estimate(
        output=plan.output_bytes,
        tensors=tensors,
        shards_here=sum(sorted((s.nbytes for s in plan.shards), reverse=True)[:most_shards]),
        largest=largest,
        largest_block=largest_block,
        scratch=max(memory.scratch.most, plan.output_bytes * plan.is_undecided),
        read=read,
        missing=missing,
        streamed=streamed,
        download=sum(streamed.get(key, sizes[key].size) for key in missing),
        cached=sum(file.size for file in sizes.values() if file.present),
        steps=steps,
        uses_torch=uses_torch,
        memory=memory.result(plan, steps, streamed, traffic + plan.output_bytes, mirror),
        time=time.result(steps, traffic, plan.output_bytes, needs_torch=memory.needs_torch),
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
    files = [
        (plan.sources[number].files[name].size, plan.sources[number].path(name))
        for number, name in estimate.read.keys() - set(estimate.missing)
    ]
    return max(files)[1] if files else None
