"""The backend of the compiled kernels: operands as vectors, results in the output's dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resumerge.engine.execute.evaluation.buffers import Buffers, Seen, unseen
from resumerge.methods import Block
from resumerge.native import CODES, Vector
from resumerge.native.calls import read_ranges, round_to
from resumerge.native.vector import F32
from resumerge.planning.backend import rounds_operand
from resumerge.planning.plan import Operand, Unit
from resumerge.sources.dtypes import FLOATS, nbytes
from resumerge.sources.reader import SourceReader


class NativeBackend:
    """Reads operands as they are stored, and rounds results to bytes."""

    def __init__(self, reader: SourceReader, buffers: Buffers) -> None:
        self._reader = reader
        self._buffers = buffers

    def inputs(self, unit: Unit, block: Block, seen: Seen = unseen) -> list[Vector]:
        """The operands of a block, rounded to the recipe's dtype.

        Args:
            seen: called with each operand's number and its bytes as they were read.
        """
        operands, cast = unit.expression.operands, unit.expression.cast
        rounds = [rounds_operand(operand, cast) for operand in operands]
        if not any(rounds):
            read = self._read(operands, block)
            for k, vector in enumerate(read):
                seen(k, vector.data)
            return read
        found: list[Vector] = []  # one by one, so that few are held as they were read
        for k, operand in enumerate(operands):
            [vector] = self._read([operand], block, k)
            seen(k, vector.data)
            found.append(self._rounded(k, vector, str(cast)) if rounds[k] else vector)
        return found

    def is_block(self, result: object, block: Block) -> bool:
        """Whether what a method returned is the block that it was asked for."""
        return (
            isinstance(result, Vector)
            and result.base is None
            and result.data.shape == (block.stop - block.start,)
            and result.data.dtype == (np.float32 if result.dtype == F32 else np.uint16)
            and result.data.flags.c_contiguous
        )

    def are_finite(self, vectors: Sequence[Any]) -> bool:
        """False: it is not looked at, since the compiled kernels make no NaN of finite numbers."""
        return False

    def expected(self, block: Block) -> str:
        """The same in words."""
        return f"a vector of {block.stop - block.start} elements, an array of float32"

    def rounded(self, unit: Unit, result: Vector) -> memoryview:
        """The bytes of a result in the unit's dtype: the only rounding of results."""
        buffer = self._buffers.take("out", nbytes(unit.dtype, len(result)))
        round_to(result, CODES[FLOATS[unit.dtype]], buffer)
        return buffer.data

    def _read(self, operands: Sequence[Operand], block: Block, first: int = 0) -> list[Vector]:
        """Operands as they are stored, in buffers that are numbered from `first` on."""
        to = [self._room(k, operand, block) for k, operand in enumerate(operands, first)]
        if not self._read_together(operands, block, to):
            for operand, vector in zip(operands, to):
                view = vector.data.view(np.uint8).data
                tensor = operand.tensor
                self._reader.read_into(operand.source, tensor, block.start, block.stop, view)
        return to

    def _read_together(
        self, operands: Sequence[Operand], block: Block, to: Sequence[Vector]
    ) -> bool:
        """Read all operands by one call. False if it fails: reading them one by one says why."""
        spans = []
        for operand in operands:
            span = self._reader.span(operand.source, operand.tensor, block.start, block.stop)
            if span is None:
                return False
            spans.append(span)
        return read_ranges(spans, to)

    def _room(self, k: int, operand: Operand, block: Block) -> Vector:
        code = CODES[FLOATS[operand.tensor.dtype]]
        width, kind = (4, np.float32) if code == F32 else (2, np.uint16)
        buffer, at = self._buffers.take_at(("raw", k), width * (block.stop - block.start))
        return Vector(buffer.view(kind), code, None, at)

    def _rounded(self, k: int, vector: Vector, cast: str) -> Vector:
        buffer = self._buffers.take(("cast", k), 2 * len(vector))
        round_to(vector, CODES[cast], buffer)
        return Vector(buffer.view(np.uint16), CODES[cast])
