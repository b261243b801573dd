"""A tensor of floats as blocks of codes with their scales, as llama.cpp stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor

PIECE = 1 << 15
"""Elements encoded at once, so that what is computed on the way fits the processor's cache."""

WORKING = 24
"""Bytes of memory for each element while a piece is encoded."""

Encode = Callable[[np.ndarray, np.ndarray], None]
"""A function that encodes float32 (count, elements) as blocks (count, bytes)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Encoded(Tensor):
    """The bytes (U8) of blocks that stand for a tensor. A range that cuts a block costs that block.

    Args:
        scheme: the name of the quantisation; it decides everything that `encode` does.
        operand: what is quantised, float32; its rows are whole blocks.
        elements: elements of a block.
        block_bytes: bytes of a block.
        encode: the function that encodes blocks.
        milliseconds: the time of one core for 2^20 elements of the operand.
    """

    scheme: str
    operand: Tensor
    elements: int
    block_bytes: int
    encode: Encode
    milliseconds: float

    @property
    def own_milliseconds(self) -> float:
        return self.operand.numel * self.milliseconds

    def children(self) -> tuple[Tensor, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [operand] = children
        return replace(self, operand=operand)

    def run_blocks(self, block_elements: int, nbytes: int) -> int:
        elements = block_elements // self.block_bytes * self.elements
        return self.operand.run_blocks(max(1, elements), nbytes)

    def passed(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        size, nbytes = self.elements, self.block_bytes
        yield from self.operand.passed(start // nbytes * size, stop // nbytes * size)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if start < stop:
            size, nbytes = self.elements, self.block_bytes
            yield from self.operand.reads(start // nbytes * size, -(-stop // nbytes) * size)

    def working_bytes(self, elements: int) -> float:
        floats = (elements // self.block_bytes + 2) * self.elements
        return 4 * floats + PIECE * WORKING + self.operand.working_bytes(floats)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        if start == stop:
            return
        size, nbytes = self.elements, self.block_bytes
        first, last = start // nbytes, -(-stop // nbytes)
        raw = evaluation.take("floats", (last - first) * size * 4)
        self.operand.read(evaluation.inner(), first * size, last * size, raw)
        values = raw.view(np.float32).reshape(-1, size)
        whole = len(out) == (last - first) * nbytes
        blocks = out if whole else evaluation.take("encoded", (last - first) * nbytes)
        for at in range(0, last - first, PIECE // size):
            part = slice(at, at + PIECE // size)
            self.encode(values[part], blocks.reshape(-1, nbytes)[part])
        if not whole:
            out[:] = blocks[start - first * nbytes : stop - first * nbytes]

    def as_json(self) -> dict[str, Any]:
        return {"encoded": self.scheme, "of": self.operand.as_json(), "shape": list(self.shape)}
