"""Blocks that contain both codes and scales, as llama.cpp writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor

PIECE_ELEMENTS = 1 << 16
"""Elements decoded at once: so few that intermediate results fit the processor's cache."""

WORKING = 32
"""Bytes of memory for each element while a piece is decoded."""

Decode = Callable[[np.ndarray, np.ndarray], None]
"""A function that decodes blocks (count, bytes) to float32 (count, elements)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedBlocks(Tensor):
    """Packed blocks, decoded to float32. If a range cuts a block, the whole block is decoded.

    Args:
        scheme: the name of the quantisation, which determines `decode`.
        coded: the bytes of the blocks, U8.
        elements: the number of elements that a block decodes to.
        block_bytes: the number of bytes that a block takes in the file.
        decode: the function that decodes blocks.
        milliseconds: the time of one core for 2^20 elements.
    """

    scheme: str
    coded: Tensor
    elements: int
    block_bytes: int
    decode: Decode
    milliseconds: float

    @property
    def own_milliseconds(self) -> float:
        return self.numel * self.milliseconds

    def children(self) -> tuple[Tensor, ...]:
        return (self.coded,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [coded] = children
        return replace(self, coded=coded)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        size, nbytes = self.elements, self.block_bytes
        yield from self.coded.no_longer_read(start // size * nbytes, stop // size * nbytes)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if start < stop:
            size, nbytes = self.elements, self.block_bytes
            yield from self.coded.reads(start // size * nbytes, -(-stop // size) * nbytes)

    def working_bytes(self, elements: int) -> float:
        decoding_bytes = (PIECE_ELEMENTS + 2 * self.elements) * WORKING
        return decoding_bytes + self.coded.working_bytes(PIECE_ELEMENTS)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        out_floats, inner_evaluation, size = out.view(np.float32), evaluation.inner(), self.elements
        blocks_at_once, end_block = PIECE_ELEMENTS // size, -(-stop // size)
        for first_block in range(start // size, end_block, blocks_at_once) if start < stop else ():
            piece_end = min(first_block + blocks_at_once, end_block)
            raw = evaluation.take("coded", (piece_end - first_block) * self.block_bytes)
            self.coded.read(
                inner_evaluation, first_block * self.block_bytes, piece_end * self.block_bytes, raw
            )
            blocks = raw.reshape(-1, self.block_bytes)
            begin, end = max(start, first_block * size), min(stop, piece_end * size)
            target = out_floats[begin - start : end - start]
            if len(target) == (piece_end - first_block) * size:
                self.decode(blocks, target.reshape(-1, size))
            else:
                whole_blocks = evaluation.take("blocks", (piece_end - first_block) * size * 4).view(
                    np.float32
                )
                self.decode(blocks, whole_blocks.reshape(-1, size))
                target[:] = whole_blocks[begin - first_block * size : end - first_block * size]

    def as_json(self) -> dict[str, Any]:
        return {"blocks": self.scheme, "of": self.coded.as_json(), "shape": list(self.shape)}
