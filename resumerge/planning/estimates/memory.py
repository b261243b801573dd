"""The estimate of the memory that a merge takes, from the plan alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from resumerge.buckets.address import is_bucket, scheme_of
from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.remote.range_reader import AHEAD_BYTES
from resumerge.sources import Source
from resumerge.tensors import (
    Adapted,
    Gathered,
    Merged,
    Quantised,
    Rounded,
    Spilled,
    Step,
    Tensor,
)
from resumerge.tensors.adapters.adapted import MATMUL_BYTES
from resumerge.tensors.buffers import REUSED
from resumerge.tensors.dtypes import BITS, FLOAT32_BYTES
from resumerge.tensors.generated import Drawn
from resumerge.tensors.target import BLOCK_RUN_BYTES

BASE_RSS = 261_000_000
"""The bytes of the process with torch loaded, without its plan and its blocks (measured). Other
builds of torch take other amounts: a run measures its own before it computes."""

KERNELS_RSS = 54_000_000
"""The bytes of the process without torch, if the kernels compute or the plan only copies bytes."""

RANDOM_RSS = 4_600_000
"""The bytes of NumPy's random generators, which are loaded for random tensors."""

PROMPTS_RSS = 6_500_000
"""The bytes of the library `tokenizers`, which splits the prompts of steps into tokens."""

UNIT_BYTES, NODE_BYTES = 2_600, 700
"""The bytes of a unit, and of each tensor in its expression except roundings: objects, names,
hashes and rows of the ledger (measured on 20,000 units: 2.7 KB for a copy, 3.9 KB for a linear
merge of two models)."""

BUCKETS_RSS, FURTHER_CLOUD_RSS = 40_000_000, 30_000_000
"""The bytes of the library that makes requests to buckets (measured: 26 to 33 MB), and of each
library for a further kind of cloud. The libraries share some modules (measured: 15 to 29 MB)."""

UPLOAD_RSS = 30_000_000
"""The bytes of the buffers of an upload to a mirror in a bucket (measured: 9 to 29 MB)."""

CLIENT_RSS = {"hub": 18_000_000}
"""The bytes of the client that streams files, by the kind of source. `BUCKETS_RSS` includes the
clients of buckets."""

SAFETY = 1.05
"""The ratio of the required budget to the predicted memory."""

TOKEN_BYTES = 500
"""The bytes of each token when a tokenizer is read: text, number and merges as Python objects."""

MADE_TOKEN_BYTES = 600
"""The bytes of each token when a tokenizer is made from a GGUF file's metadata (measured: 540 for
151,000 tokens)."""

HEADER_FACTOR = 28
"""The bytes of memory to make a GGUF model's header, for each byte of the header. Most of the
header is the tokenizer (measured: 26 for 49,000 tokens)."""


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes of RSS that a merge needs with a given number of threads, by their purpose.

    Args:
        process: bytes of the process without its blocks: the program, its libraries and clients,
            and the plan.
        shared: bytes that all threads share, without their blocks: tokenizers, reductions, held
            values, and buffers.
        least: bytes of the blocks of one thread.
        blocks: bytes of the blocks of all threads.
        traffic: bytes read and written, which the page cache keeps if it has room.
        steps: the most bytes that planning or computing a step needs. Steps come before blocks.
        least_steps: `steps` with one thread.
    """

    process: int
    shared: int
    least: int
    blocks: int
    traffic: int
    steps: int = 0
    least_steps: int = 0

    @property
    def peak_rss(self) -> int:
        """The most bytes of RSS with all threads."""
        return self.process + max(self.shared + self.blocks, self.steps)

    @property
    def enough(self) -> int:
        """The budget in bytes that suffices even if the prediction is a little too low."""
        return int(self.peak_rss * SAFETY)

    @property
    def least_enough(self) -> int:
        """The budget in bytes that suffices for one thread."""
        return int(self.least_rss * SAFETY)

    @property
    def least_rss(self) -> int:
        """The most bytes of RSS with one thread."""
        return self.process + max(self.shared + self.least, self.least_steps)


@dataclass(frozen=True)
class MemoryEstimate:
    """The bytes of RSS that a merge needs, for any number of threads.

    The uncommitted limit is not included, because uncommitted output is in the page cache.

    Args:
        process: bytes of the process without its blocks: the program, its libraries and clients,
            and the plan.
        vocabulary: bytes of the tokenizers that are read, and of the maps of rows made from them.
        reductions: the most bytes that the reductions of two consecutive units need together,
            because a unit starts before the previous unit is done. Further units start only if they
            need no more memory than that.
        across_blocks: the most bytes held for the blocks of several units: the matrices of two
            tensors of each adapter, the means of rows, and the results of steps.
        buffers: bytes for multiplying the matrices, and for reading ahead from servers.
        kept: bytes of the largest block run whose memory its thread keeps for the next block run.
        passing: the larger block runs, whose memory is freed after each of them: (bytes, number of
            blocks) of consecutive units; 0 bytes for a unit without such block runs.
        traffic: bytes read and written, which the page cache keeps if it has room.
        steps: the steps, which are computed before the blocks.
    """

    process: int
    vocabulary: int
    reductions: int
    across_blocks: int
    buffers: int
    kept: int
    passing: tuple[tuple[int, int], ...]
    traffic: int
    steps: frozenset[Step]

    def need(self, threads: int) -> MemoryNeed:
        """Return the memory that the merge needs with this number of threads."""
        return MemoryNeed(
            process=self.process,
            shared=self.vocabulary + self.reductions + self.across_blocks + self.buffers,
            least=self.blocks(1),
            blocks=self.blocks(threads),
            traffic=self.traffic,
            steps=self._steps(threads),
            least_steps=self._steps(1),
        )

    def blocks(self, threads: int) -> int:
        """Return the most bytes of the block runs that threads compute at the same time.

        Threads keep the memory of block runs of the usual size. In the end, each thread holds the
        memory of the largest of these block runs. Larger block runs (whole tensors) count only
        while they are computed. While one thread computes a larger block run, the other threads may
        compute the block runs after it.
        """
        most_bytes, window = 0, 2 * threads + 1
        recent_run_bytes: deque[int] = deque(maxlen=window)
        for nbytes, blocks in self.passing:
            for _ in range(min(blocks, window)):
                recent_run_bytes.append(nbytes)
                most_bytes = max(most_bytes, sum(sorted(recent_run_bytes)[-threads:]))
        return threads * self.kept + most_bytes

    def _steps(self, threads: int) -> int:
        return max((max(s.planning_bytes, s.working_bytes(threads)) for s in self.steps), default=0)


@dataclass
class Neighbours:
    """The most bytes of two consecutive units. Units are added in order."""

    most: int = 0
    _last: int = 0

    def add(self, nbytes: int) -> None:
        """Add the bytes of the next unit."""
        self.most, self._last = max(self.most, self._last + nbytes), nbytes


@dataclass
class MemoryCounter:
    """A counter of the memory and the scratch files that the units of a plan need.

    Args:
        whole: the largest tensor that a method must hold as a whole: (bytes, number of its unit,
            method, name); None if no method holds whole tensors.
        spilled: number of tensors that are written to scratch files.
    """

    needs_torch: bool = False
    spilled: int = 0
    scratch: Neighbours = field(default_factory=Neighbours)
    whole: tuple[int, int, str, str] | None = None
    _nodes: int = 0
    _draws: bool = False
    _kept: int = 0
    _kept_beside: int = 0
    """The most bytes of a quantised weight's buffers, which are kept in addition to `_kept`."""
    _multiplies: bool = False
    _held_to_the_end: int = 0
    _reductions: Neighbours = field(default_factory=Neighbours)
    _passing: list[tuple[int, int]] = field(default_factory=list)
    _maps: dict[int, int] = field(default_factory=dict)
    _held_in_turn: dict[Hashable, int] = field(default_factory=dict)

    def add(self, unit: Unit, nodes: Sequence[Tensor]) -> None:
        """Add the next unit, with the nodes of its expression."""
        run_elements = _block_run_elements(unit)
        run_bytes = _block_run_bytes(unit, run_elements)
        is_passing = run_elements * FLOAT32_BYTES > REUSED
        if not is_passing and isinstance(unit.expression, Quantised):
            self._kept_beside = max(self._kept_beside, run_bytes)
        elif not is_passing:
            self._kept = max(self._kept, run_bytes)
        self._add_to_line(run_bytes if is_passing else 0, unit.blocks)
        spilled_nodes = [node for node in dict.fromkeys(nodes) if isinstance(node, Spilled)]
        self.spilled += len(spilled_nodes)
        self.scratch.add(sum(node.nbytes for node in spilled_nodes))
        bytes_of_reductions = 0
        for node in nodes:
            self._nodes += not isinstance(node, Rounded)
            self.needs_torch = self.needs_torch or node.needs_torch
            self._draws = self._draws or isinstance(node, Drawn)
            self._multiplies = self._multiplies or isinstance(node, Adapted)
            turn_key = node.held_in_turn
            if turn_key is None:
                self._held_to_the_end += node.held_bytes
            else:
                self._held_in_turn[turn_key] = max(
                    self._held_in_turn.get(turn_key, 0), node.held_bytes
                )
            if isinstance(node, Gathered):
                self._maps[id(node.rows)] = node.rows.nbytes
            elif isinstance(node, Merged):
                bytes_of_reductions += _reduction_bytes(node)
                if node.merge_method.whole_tensor and node.block_elements >= node.numel:
                    whole_tensor = (run_bytes, unit.number, node.method, unit.name)
                    self.whole = max(self.whole or whole_tensor, whole_tensor)
        self._reductions.add(bytes_of_reductions)

    def _add_to_line(self, nbytes: int, blocks: int) -> None:
        """Add the blocks of the next unit to `_passing`. Consecutive equal sizes share an entry."""
        if self._passing and self._passing[-1][0] == nbytes:
            blocks += self._passing.pop()[1]
        self._passing.append((nbytes, blocks))

    def result(
        self,
        plan: Plan,
        steps: Iterable[Step],
        streamed: Iterable[SourceFileKey],
        traffic: int,
        mirror: str | None,
    ) -> MemoryEstimate:
        """Return the memory estimate of a plan, after all its units were added.

        Args:
            plan: the plan whose units were added, all of them and in order.
            steps: the steps in the expressions of these units; duplicates count once.
            streamed: the keys of the streamed files. Their kinds decide which clients are loaded.
            traffic: bytes read and written.
            mirror: address of the run's mirror; None if it has no mirror.
        """
        steps = frozenset(steps)
        streamed_kinds = {plan.sources[number].part_of(name)[0].kind for number, name in streamed}
        vocabulary_bytes = 0
        for model_plan in plan.variants.values() or [plan]:
            if model_plan.vocabulary is not None:
                vocabulary_bytes += (
                    TOKEN_BYTES * len(model_plan.tokenizers) * model_plan.vocabulary.rows
                )
        if plan.vocabulary is not None:
            vocabulary_bytes += sum(self._maps.values())
        vocabulary_bytes += MADE_TOKEN_BYTES * max(part.contained.tokens for part in _parts(plan))
        if plan.is_gguf:
            vocabulary_bytes += HEADER_FACTOR * len(plan.shards[0].header)
        step_result_bytes = sum(step.nbytes for step in steps)
        return MemoryEstimate(
            process=self._process(plan, mirror)
            + PROMPTS_RSS * bool(steps)
            + sum(CLIENT_RSS.get(kind, 0) for kind in streamed_kinds),
            vocabulary=vocabulary_bytes,
            reductions=self._reductions.most,
            across_blocks=2 * sum(self._held_in_turn.values())
            + self._held_to_the_end
            + step_result_bytes,
            buffers=MATMUL_BYTES * self._multiplies + AHEAD_BYTES * bool(streamed_kinds),
            kept=self._kept + self._kept_beside,
            passing=tuple(self._passing),
            traffic=traffic,
            steps=steps,
        )

    def _process(self, plan: Plan, mirror: str | None) -> int:
        nbytes = BASE_RSS if self.needs_torch else KERNELS_RSS
        nbytes += UNIT_BYTES * len(plan.units) + NODE_BYTES * self._nodes + RANDOM_RSS * self._draws
        cloud_schemes = {scheme_of(part.ref.name) for part in _parts(plan) if part.kind == "bucket"}
        is_mirrored = mirror is not None and is_bucket(mirror)
        cloud_schemes |= {scheme_of(mirror)} if mirror is not None and is_mirrored else set()
        if cloud_schemes:
            nbytes += BUCKETS_RSS + FURTHER_CLOUD_RSS * (len(cloud_schemes) - 1)
        return nbytes + UPLOAD_RSS * is_mirrored


def reduction_bytes(unit: Unit) -> int:
    """Return the bytes that a unit's reductions need until its blocks are computed."""
    return sum(_reduction_bytes(n) for n in unit.expression.nodes() if isinstance(n, Merged))


def _reduction_bytes(node: Merged) -> int:
    return node.merge_method.statistics_bytes(node.context) if node.blocks > 1 else 0


def _block_run_elements(unit: Unit) -> int:
    blocks = 1 if unit.is_copied else unit.blocks_at_once(BLOCK_RUN_BYTES)
    return min(unit.numel, blocks * unit.block_elements)


def _parts(plan: Plan) -> list[Source]:
    """Return the parts of all models of a plan: each model itself, or its base and adapter."""
    return [part for source in plan.sources for part in source.parts.values()]


def _block_run_bytes(unit: Unit, elements: int) -> int:
    """Return the bytes that one block run needs: its output, operands and working memory."""
    tensor = unit.expression
    if isinstance(tensor, Merged):
        beside_output = tensor.computing_bytes(elements)  # a merge computes whole blocks
    else:
        beside_output = tensor.working_bytes(elements)
    if isinstance(tensor, Adapted):
        beside_output += tensor.measuring_bytes(elements, unit.block_elements)
    return int(elements * (BITS[unit.dtype] // 8) + beside_output)
