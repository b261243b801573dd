"""A tensor that a merge method computes from its operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.kernels import BlockRun, round_to
from resumerge.kernels.hashes import hash_blocks
from resumerge.kernels.measurements import keeping_exact, measured_bytes
from resumerge.methods import METHODS, KernelMethod, MergeMethod, TensorContext, Value
from resumerge.native import Vector, read_ranges
from resumerge.tensors.dtypes import BITS, FLOAT32_BYTES, nbytes
from resumerge.tensors.evaluation import Evaluation, as_vector, bytes_of, code_of
from resumerge.tensors.stored import Stored
from resumerge.tensors.target import BLOCK_RUN_BYTES
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Merged(Tensor):
    """The result of a merge method over tensors, rounded to `dtype` as it is computed.

    Whole blocks are computed, even if a range begins or ends inside a block.

    Args:
        method: name of the merge method.
        operands: the tensors that are merged.
        params: the parameters of the merge, resolved for this tensor.
        per_operand: the parameters of each operand, resolved for this tensor.
        base: the index of the base model's operand; None if there is no base.
        seed: the seed of random masks.
        block_elements: elements of a block. A block is computed at once, and has its own masks.
        models: the model that each operand belongs to, as text.
    """

    method: str
    operands: tuple[Tensor, ...]
    params: Mapping[str, Value]
    per_operand: tuple[Mapping[str, Value], ...]
    base: int | None
    seed: int
    block_elements: int
    models: tuple[str, ...] = ()

    @property
    def merge_method(self) -> MergeMethod:
        return METHODS[self.method]

    @property
    def context(self) -> TensorContext:
        """The facts about this tensor that are passed to the method."""
        return TensorContext(
            shape=self.shape,
            params=self.params,
            per_model=self.per_operand,
            base=self.base,
            name=self.name,
            seed=self.seed,
            bits=max(BITS[operand.unrounded.dtype] for operand in self.operands),
        )

    @property
    def reference(self) -> int:
        """The index of the operand that changes are measured from: the base, or the first one."""
        return self.base or 0

    @property
    def compared_models(self) -> tuple[str, ...]:
        names = [*self.models] or [f"operand {n + 1}" for n in range(len(self.operands))]
        return names.pop(self.reference), *names

    @property
    def needs_statistics(self) -> bool:
        """Whether blocks depend on reductions over whole operands."""
        return self.numel > 0 and self.merge_method.passes(self.context) > 1

    @property
    def statistics_key(self) -> Hashable:
        """A key of everything that the reductions depend on. Equal keys mean equal statistics."""
        unread = self.merge_method.not_in_statistics
        return (
            *(self.method, self.name, self.shape, self.base, self.seed, self.block_elements),
            tuple((operand.unrounded, operand.dtype) for operand in self.operands),
            *(
                tuple((name, value) for name, value in params.items() if name not in unread)
                for params in (self.params, *self.per_operand)
            ),
        )

    @property
    def uses_torch(self) -> bool:
        """Whether the method computes with torch, rather than with the kernels."""
        return not isinstance(self.merge_method, KernelMethod)

    @property
    def blocks(self) -> int:
        """The number of blocks. An empty tensor has one empty block."""
        return max(1, -(-self.numel // self.block_elements))

    def block_run(self, indices: range, *, sample: bool = False) -> BlockRun:
        """Return consecutive blocks that are read and computed together.

        Args:
            indices: the numbers of the blocks.
            sample: whether only the first elements of each block are read.
        """
        return BlockRun.of(self.numel, self.block_elements, indices, sample=sample)

    def children(self) -> tuple[Tensor, ...]:
        return self.operands

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        return replace(self, operands=children)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield ranges of completed blocks only: later elements of a block read all of it again."""
        size = self.block_elements
        completed_end = stop if stop == self.numel else stop // size * size
        for operand in self.operands:
            yield from operand.no_longer_read(start // size * size, completed_end)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        size = self.block_elements
        begin, end = start // size * size, min(-(-stop // size) * size, self.numel)
        for operand in self.operands:
            yield from operand.reads(begin, end)

    def computing_bytes(self, elements: int) -> float:
        """Return the bytes of buffers while this number of elements is computed at once."""
        cost, inputs = self.merge_method.cost, len(self.operands)
        bytes_per_element = sum(BITS[operand.dtype] // 8 for operand in self.operands)
        scratch = FLOAT32_BYTES * (cost.scratch + cost.per_input * inputs)
        own_buffers = super().working_bytes(elements) + measured_bytes(
            elements, self.block_elements
        )
        if self.uses_torch:  # block by block, with inputs in float32
            block = min(self.numel, self.block_elements)
            return (
                own_buffers
                + elements * bytes_per_element
                + block * (FLOAT32_BYTES * inputs + scratch)
            )
        return own_buffers + elements * (bytes_per_element + scratch)

    def working_bytes(self, elements: int) -> float:
        blocks = min(self._blocks_at_once, -(-elements // self.block_elements) + 1)
        run = min(self.numel, blocks * self.block_elements)
        return run * (BITS[self.dtype] // 8) + self.computing_bytes(run)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        size, length = self.block_elements, stop - start
        has_whole_blocks = start % size == 0 and (length % size == 0 or stop == self.numel)
        if has_whole_blocks and length <= self._blocks_at_once * size:
            run = BlockRun(start // size, size, length)
            self._compute(evaluation, run, as_vector(out, self.dtype))
        else:
            self._read_parts(evaluation, start, stop, out)

    def _read_parts(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        """Compute a range by block runs. Block runs that it covers in part use a buffer."""
        width, size, step = BITS[self.dtype] // 8, self.block_elements, self._blocks_at_once
        end_block = -(-stop // size)
        for block in range(start // size, end_block, step):
            run = self.block_run(range(block, min(block + step, end_block)))
            run_start, run_stop = block * size, block * size + run.length
            if start <= run_start and run_stop <= stop:
                part = out[(run_start - start) * width : (run_stop - start) * width]
                self._compute(evaluation, run, as_vector(part, self.dtype))
                continue
            block_vector = evaluation.vector("blocks", run.length, code_of(self.dtype))
            self._compute(evaluation, run, block_vector)
            part_start, part_end = max(start, run_start), min(stop, run_stop)
            part = bytes_of(block_vector)[
                (part_start - run_start) * width : (part_end - run_start) * width
            ]
            out[(part_start - start) * width : (part_end - start) * width] = part

    def inputs(self, evaluation: Evaluation, run: BlockRun) -> list[Vector]:
        """Return the elements of a block run, one vector for each operand, rounded to its dtype."""
        length, ranges = run.length, run.ranges()
        vectors = [
            evaluation.vector(number, length, code) for number, code in enumerate(self._codes)
        ]
        hashes, places = evaluation.hashes, self._places(evaluation, vectors, ranges)
        block_hashes = read_ranges(places) if places else None
        if block_hashes:
            for number in hashes:
                hashes[number].extend(block_hashes[number] or self._hash_blocks(vectors[number]))
            return vectors
        inner_evaluation = evaluation.inner()
        for number, (operand, vector) in enumerate(zip(self.operands, vectors)):
            unrounded, raw = operand.unrounded, vector
            if unrounded is not operand:
                raw = evaluation.vector("unrounded", length, code_of(unrounded.dtype))
            for (start, stop), range_elements in zip(ranges, _parts(raw, ranges)):
                unrounded.read(inner_evaluation, start, stop, range_elements.view(np.uint8))
            if number in hashes:
                hashes[number].extend(self._hash_blocks(raw))
            if raw is not vector:
                round_to(raw, vector)
        return vectors

    def as_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "params": dict(self.params),
            "base": self.base,
            "dtype": self.dtype,
            "operands": [
                {"params": dict(params), "of": operand.as_json()}
                for params, operand in zip(self.per_operand, self.operands)
            ],
        }

    def reads_as(self, other: Merged) -> bool:
        """Return whether `other` has the same `inputs` for the same block run."""
        return (self.numel, self.block_elements) == (other.numel, other.block_elements) and [
            (operand.unrounded, operand.dtype) for operand in self.operands
        ] == [(operand.unrounded, operand.dtype) for operand in other.operands]

    def compute(
        self, evaluation: Evaluation, inputs: list[Vector], run: BlockRun, out: Vector
    ) -> None:
        """Compute a block run from its `inputs`, which are not changed."""
        if evaluation.measures:
            buffer = evaluation.take("exact", measured_bytes(run.length, run.size))
            out = keeping_exact(out, run.size, buffer)
        evaluation.backend_of(self).compute(inputs, run, evaluation.preparation.get(self), out)
        if evaluation.measures:
            other_inputs = [*inputs]
            reference = other_inputs.pop(self.reference)
            evaluation.measure(reference, other_inputs, out)

    def _compute(self, evaluation: Evaluation, run: BlockRun, out: Vector) -> None:
        self.compute(evaluation, self.inputs(evaluation, run), run, out)

    @property
    def _blocks_at_once(self) -> int:
        return self.blocks_at_once(self.block_elements, BLOCK_RUN_BYTES)

    @property
    def _codes(self) -> list[int]:
        """The element types of the operands."""
        return [code_of(operand.dtype) for operand in self.operands]

    @property
    def _stored(self) -> list[Stored]:
        """All operands, if each is contiguous in a file and one call can read them; else empty."""
        stored_operands = [
            operand
            for operand in self.operands
            if isinstance(operand, Stored) and operand.is_contiguous
        ]
        return stored_operands if len(stored_operands) == len(self.operands) else []

    def _places(
        self,
        evaluation: Evaluation,
        vectors: Sequence[Vector],
        ranges: Sequence[tuple[int, int]],
    ) -> list[tuple[int, int, np.ndarray, int]]:
        """Return the place in a file of each range of each operand, and the array to read into.

        Returns:
            (descriptor, offset in bytes, destination, bytes of a block to hash or 0) of each range;
            empty if an operand is computed, or is not on this disk.
        """
        places = []
        for number, (stored_operand, vector) in enumerate(zip(self._stored, vectors)):
            descriptor = evaluation.files.descriptor(stored_operand)
            if descriptor is None:
                return []
            hashed_bytes = (
                nbytes(stored_operand.dtype, self.block_elements)
                if number in evaluation.hashes
                else 0
            )
            for (start, stop), destination in zip(ranges, _parts(vector, ranges)):
                places.append(
                    (
                        descriptor,
                        stored_operand.byte_range(start, stop)[0],
                        destination,
                        hashed_bytes,
                    )
                )
        return places

    def _hash_blocks(self, vector: Vector) -> bytes:
        data = bytes_of(vector).data
        return hash_blocks(data, self.block_elements * len(data) // len(vector))


def _parts(vector: Vector, ranges: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Return the elements of a vector that each range fills."""
    if len(ranges) == 1:
        return [vector.data]
    slices, filled = [], 0
    for start, stop in ranges:
        slices.append(vector.data[filled : filled + stop - start])
        filled += stop - start
    return slices
