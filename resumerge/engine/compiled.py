"""The side of the compiled kernels: operands as vectors, results into the output's dtype."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from resumerge.engine.buffers import Buffers
from resumerge.methods import Block
from resumerge.native import CODES, Vector
from resumerge.native.calls import read_ranges, round_to
from resumerge.native.vector import F32
from resumerge.planning.model import Operand, Unit
from resumerge.sources.dtypes import FLOATS, nbytes
from resumerge.sources.read import SourceReader

if TYPE_CHECKING:
    import numpy as np
else:
    from resumerge import numpy_later as np


class Compiled:
    """Reads operands as they are stored, and rounds results to bytes."""

    def __init__(self, reader: SourceReader, buffers: Buffers) -> None:
        self._reader = reader
        self._buffers = buffers

    def inputs(self, unit: Unit, block: Block) -> list[Vector]:
        """The operands of a block, rounded to the recipe's dtype."""
        cast, operands = unit.expression.cast, unit.expression.operands
        length = block.stop - block.start
        read = [self._room(("raw", k), o.tensor.dtype, length) for k, o in enumerate(operands)]
        if not self._read_together(operands, block, read):
            for operand, vector in zip(operands, read):
                view = vector.data.view(np.uint8).data
                self._reader.read_into(
                    operand.source, operand.tensor, block.start, block.stop, view
                )
        if cast is None:
            return read
        return [self._rounded(("cast", k), vector, cast) for k, vector in enumerate(read)]

    def rounded(self, unit: Unit, result: Vector) -> memoryview:
        """The bytes of a result in the unit's dtype: the one rounding."""
        buffer = self._buffers.take("out", nbytes(unit.dtype, len(result)))
        round_to(result, CODES[FLOATS[unit.dtype]], buffer)
        return buffer.data

    def _read_together(
        self, operands: Sequence[Operand], block: Block, to: Sequence[Vector]
    ) -> bool:
        """Read all by one call; False where it cannot: what went wrong is said one by one."""
        spans = []
        for operand in operands:
            span = self._reader.span(operand.source, operand.tensor, block.start, block.stop)
            if span is None:
                return False
            spans.append(span)
        return read_ranges(spans, to)

    def _room(self, name: Hashable, dtype: str, length: int) -> Vector:
        code = CODES[FLOATS[dtype]]
        kind = np.float32 if code == F32 else np.uint16
        buffer, at = self._buffers.take_at(name, length * (4 if code == F32 else 2))
        return Vector(buffer.view(kind), code, None, at)

    def _rounded(self, name: Hashable, vector: Vector, cast: str) -> Vector:
        if CODES[cast] in (vector.dtype, F32):
            return vector
        buffer = self._buffers.take(name, 2 * len(vector))
        round_to(vector, CODES[cast], buffer)
        return Vector(buffer.view(np.uint16), CODES[cast])
