"""The side of the compiled kernels: operands as vectors, results into the output's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resumerge.engine.buffers import Buffers
from resumerge.methods import Block
from resumerge.native import CODES, Vector
from resumerge.native.calls import round_to
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
        cast = unit.expression.cast
        return [
            self._input(k, operand, block, cast)
            for k, operand in enumerate(unit.expression.operands)
        ]

    def rounded(self, unit: Unit, result: Vector) -> memoryview:
        """The bytes of a result in the unit's dtype: the one rounding."""
        buffer = self._buffers.take("out", nbytes(unit.dtype, len(result)))
        round_to(result, CODES[FLOATS[unit.dtype]], buffer)
        return buffer.data

    def _input(self, k: int, operand: Operand, block: Block, cast: str | None) -> Vector:
        tensor = operand.tensor
        size = nbytes(tensor.dtype, block.stop) - nbytes(tensor.dtype, block.start)
        raw = self._buffers.take(f"raw {k}", size)
        self._reader.read_into(operand.source, tensor, block.start, block.stop, raw.data)
        read = _vector(raw, FLOATS[tensor.dtype])
        if cast is None or CODES[cast] in (read.dtype, F32):
            return read
        rounded = self._buffers.take(f"cast {k}", 2 * len(read))
        round_to(read, CODES[cast], rounded)
        return _vector(rounded, cast)


def _vector(raw: np.ndarray, dtype: str) -> Vector:
    code = CODES[dtype]
    return Vector(raw.view(np.float32 if code == F32 else np.uint16), code)
