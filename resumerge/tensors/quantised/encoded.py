"""A tensor of floats that is written as blocks of codes with scales, as in llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.kernels import round_to
from resumerge.kernels.measurements import measured_elements
from resumerge.native import Vector
from resumerge.tensors.adapters.adapted import Adapted
from resumerge.tensors.evaluation import Compare, Evaluation
from resumerge.tensors.quantised.packed_blocks import Decode
from resumerge.tensors.tensor import Tensor

PIECE_ELEMENTS = 1 << 15
"""Elements encoded at once: so few that intermediate results fit the processor's cache."""

WORKING = 24
"""Bytes of memory for each element while a piece is encoded."""

Encode = Callable[[np.ndarray, np.ndarray], None]
"""A function that encodes float32 (count, elements) as blocks (count, bytes)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Encoded(Tensor):
    """The bytes (U8) of the blocks that encode a tensor. For any range, whole blocks are encoded.

    Args:
        scheme: the name of the quantisation, which determines `encode`.
        operand: the tensor that is quantised, float32. Its rows are whole blocks.
        elements: the number of elements that a block encodes.
        block_bytes: the number of bytes that a block takes in the file.
        encode: the function that encodes blocks.
        decode: the function that decodes blocks.
        milliseconds: the time of one core for 2^20 elements of the operand.
    """

    scheme: str
    operand: Tensor
    elements: int
    block_bytes: int
    encode: Encode
    decode: Decode
    milliseconds: float

    @property
    def own_milliseconds(self) -> float:
        return self.operand.numel * self.milliseconds

    @property
    def compared_models(self) -> tuple[str, ...]:
        return self.operand.compared_models

    @property
    def scheme_measured(self) -> tuple[str, int]:
        return self.scheme, self.operand.numel

    def children(self) -> tuple[Tensor, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [operand] = children
        return replace(self, operand=operand)

    def blocks_at_once(self, block_elements: int, nbytes: int) -> int:
        elements = block_elements // self.block_bytes * self.elements
        return self.operand.blocks_at_once(max(1, elements), nbytes)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        size, nbytes = self.elements, self.block_bytes
        yield from self.operand.no_longer_read(start // nbytes * size, stop // nbytes * size)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if start < stop:
            size, nbytes = self.elements, self.block_bytes
            yield from self.operand.reads(start // nbytes * size, -(-stop // nbytes) * size)

    def working_bytes(self, elements: int) -> float:
        floats = (elements // self.block_bytes + 2) * self.elements
        operand_bytes = self.operand.working_bytes(floats)
        if isinstance(self.operand, Adapted):
            operand_bytes += self.operand.measuring_bytes(floats, floats)
        sample_bytes = 8 * measured_elements(floats) * bool(self.compared_models)
        return 4 * floats + PIECE_ELEMENTS * WORKING + operand_bytes + sample_bytes

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        if start == stop:
            return
        size, nbytes = self.elements, self.block_bytes
        first_block, end_block = start // nbytes, -(-stop // nbytes)
        raw = evaluation.take("floats", (end_block - first_block) * size * 4)
        inner_evaluation = evaluation.inner()
        if evaluation.measures:
            block = evaluation.block_elements // nbytes * size
            inner_evaluation = inner_evaluation.comparing(self._measuring(evaluation), block)
        self.operand.read(inner_evaluation, first_block * size, end_block * size, raw)
        floats_of_blocks = raw.view(np.float32).reshape(-1, size)
        has_whole_blocks = len(out) == (end_block - first_block) * nbytes
        blocks = (
            out
            if has_whole_blocks
            else evaluation.take("encoded", (end_block - first_block) * nbytes)
        )
        for row in range(0, end_block - first_block, PIECE_ELEMENTS // size):
            piece = slice(row, row + PIECE_ELEMENTS // size)
            self.encode(floats_of_blocks[piece], blocks.reshape(-1, nbytes)[piece])
        if not has_whole_blocks:
            out[:] = blocks[start - first_block * nbytes : stop - first_block * nbytes]

    def _measuring(self, evaluation: Evaluation) -> Compare:
        """Return a function that measures the operand's results after encoding and decoding."""

        def compare(reference: Vector, others: Sequence[Vector], result: Vector) -> None:
            block, sample_elements = result.block, result.measured
            decoded_numbers = np.empty((2, len(result.exact)), np.float32)
            for number, start in enumerate(range(0, len(result), block)):
                stop = min(start + sample_elements, len(result))
                numbers_of_block = decoded_numbers[:, number * sample_elements :][:, : stop - start]
                for numbers, vector in zip(numbers_of_block, (result, reference)):
                    numbers[:] = self._as_written(vector, start, stop)
            evaluation.measure(reference, others, result, decoded_numbers)

        return compare

    def _as_written(self, vector: Vector, start: int, stop: int) -> np.ndarray:
        """Return numbers encoded and decoded again, float32. `start` is the start of a block."""
        end = start - (start - stop) // self.elements * self.elements
        floats_of_blocks = np.empty(
            (end - start) // self.elements, np.dtype((np.float32, self.elements))
        )
        round_to(Vector(vector.data[start:end], vector.dtype), Vector(floats_of_blocks.reshape(-1)))
        blocks = np.empty((len(floats_of_blocks), self.block_bytes), np.uint8)
        self.encode(floats_of_blocks, blocks)
        self.decode(blocks, floats_of_blocks)
        return floats_of_blocks.reshape(-1)[: stop - start]

    def as_json(self) -> dict[str, Any]:
        return {"encoded": self.scheme, "of": self.operand.as_json(), "shape": list(self.shape)}
