"""Reading the operands of one unit, a run of blocks at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from resumerge.engine.execute.evaluation.buffers import Buffers
from resumerge.engine.execute.evaluation.row_gather import RowReader
from resumerge.kernels import Run, round_to
from resumerge.native import CODES, Vector, read_ranges
from resumerge.planning.backend import rounds_operand
from resumerge.planning.plan import Expression, Operand
from resumerge.sources.dtypes import FLOATS, nbytes
from resumerge.sources.reader import SourceReader

Seen = Callable[[int, Vector], None]
"""Is called with the number of an operand and its elements, which are valid during the call."""


class Operands:
    """The operands of an expression, as they are stored and rounded to the recipe's dtype."""

    def __init__(
        self, expression: Expression, reader: SourceReader, buffers: Buffers, rows: RowReader
    ) -> None:
        self._operands, self._cast = expression.operands, expression.cast
        self._reader, self._buffers, self._rows = reader, buffers, rows
        self._codes = [
            CODES["float32" if operand.rows else FLOATS[operand.tensor.dtype]]
            for operand in self._operands
        ]
        self._are_rounded = [
            operand.rows is None and rounds_operand(operand, self._cast)
            for operand in self._operands
        ]
        self._are_verbatim = all(
            operand.tensor.verbatim and operand.rows is None for operand in self._operands
        )

    def read(self, run: Run, seen: Seen) -> list[Vector]:
        """The elements of a run of every operand, one block after the other.

        Args:
            seen: called with each operand as it was read, or as it was gathered from the rows of
                several tensors.
        """
        if not any(self._are_rounded):
            vectors = [self._buffer(k, run) for k in range(len(self._codes))]
            self._fill(self._operands, vectors, run)
            for k, vector in enumerate(vectors):
                seen(k, vector)
            return vectors
        # One by one, so that few are held as they were read.
        return [self._one(k, run, seen) for k in range(len(self._codes))]

    def _one(self, k: int, run: Run, seen: Seen) -> Vector:
        vector = self._buffer(k, run)
        self._fill([self._operands[k]], [vector], run)
        seen(k, vector)
        if not self._are_rounded[k]:
            return vector
        rounded = self._buffers.vector(("rounded", k), run.length, CODES[str(self._cast)])
        round_to(vector, rounded)
        return rounded

    def _buffer(self, k: int, run: Run) -> Vector:
        return self._buffers.vector(("read", k), run.length, self._codes[k])

    def _fill(self, operands: Sequence[Operand], vectors: list[Vector], run: Run) -> None:
        """Read all operands by one call; where it fails, one by one, which says why."""
        ranges = run.ranges()
        if self._are_verbatim:
            places = []
            for operand, vector in zip(operands, vectors):
                tensor = operand.tensor
                descriptor = self._reader.descriptor(operand.source, tensor)
                for start, part in _parts(vector, ranges):
                    places.append((descriptor, tensor.offset + nbytes(tensor.dtype, start), part))
            if read_ranges(places):
                return
        for operand, vector in zip(operands, vectors):
            for start, part in _parts(vector, ranges):
                self._read(operand, start, part)

    def _read(self, operand: Operand, start: int, part: np.ndarray) -> None:
        stop = start + len(part)
        if operand.rows is not None:
            self._rows.read_into(operand.rows, start, stop, self._cast, part)
        else:
            view = part.view(np.uint8).data
            self._reader.read_into(operand.source, operand.tensor, start, stop, view)


def _parts(vector: Vector, ranges: list[tuple[int, int]]) -> list[tuple[int, np.ndarray]]:
    """The elements of a vector that each range fills, after the range's first element."""
    if len(ranges) == 1:
        return [(ranges[0][0], vector.data)]
    parts, at = [], 0
    for start, stop in ranges:
        parts.append((start, vector.data[at : at + stop - start]))
        at += stop - start
    return parts
