"""Reading the operands of consecutive blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from resumerge.engine.execute.evaluation.buffers import Buffers, Seen, unseen
from resumerge.engine.execute.evaluation.row_gather import RowReader
from resumerge.kernels import round_to
from resumerge.methods import Block
from resumerge.native import CODES, Vector, read_ranges
from resumerge.planning.backend import rounds_operand
from resumerge.planning.plan import Operand, Unit
from resumerge.sources.dtypes import FLOATS, nbytes
from resumerge.sources.reader import SourceReader


class Operands:
    """Reads operands as they are stored, and rounds them to the recipe's dtype."""

    def __init__(self, reader: SourceReader, buffers: Buffers) -> None:
        self._reader = reader
        self._buffers = buffers
        self._rows = RowReader(reader, buffers)

    def read(self, unit: Unit, blocks: Sequence[Block], seen: Seen = unseen) -> list[Vector]:
        """The elements of some blocks of every operand, one block after the other.

        Args:
            seen: called with each operand's number and its bytes of each block: as they were read,
                or as they were gathered from the rows of several tensors.
        """
        operands, cast = unit.expression.operands, unit.expression.cast
        if not any(operand.rows or rounds_operand(operand, cast) for operand in operands):
            vectors = [self._buffer(k, operand, blocks) for k, operand in enumerate(operands)]
            self._fill(operands, vectors, blocks)
            for k, vector in enumerate(vectors):
                _show(seen, k, vector, blocks)
            return vectors
        # One by one, so that few are held as they were read.
        return [self._one(k, operand, blocks, cast, seen) for k, operand in enumerate(operands)]

    def _one(
        self, k: int, operand: Operand, blocks: Sequence[Block], cast: str | None, seen: Seen
    ) -> Vector:
        if operand.rows is not None:
            gathered = self._buffers.vector(("raw", k), _length(blocks), CODES["float32"])
            for block, part in _parts(gathered, blocks):
                self._rows.read_into(operand.rows, block.start, block.stop, cast, part)
            _show(seen, k, gathered, blocks)
            return gathered
        vector = self._buffer(k, operand, blocks)
        self._fill([operand], [vector], blocks)
        _show(seen, k, vector, blocks)
        if not rounds_operand(operand, cast):
            return vector
        rounded = self._buffers.vector(("cast", k), len(vector), CODES[str(cast)])
        round_to(vector, rounded)
        return rounded

    def _buffer(self, k: int, operand: Operand, blocks: Sequence[Block]) -> Vector:
        code = CODES[FLOATS[operand.tensor.dtype]]
        return self._buffers.vector(("raw", k), _length(blocks), code)

    def _fill(
        self, operands: Sequence[Operand], vectors: Sequence[Vector], blocks: Sequence[Block]
    ) -> None:
        """Read all operands by one call; where it fails, one by one, which says why."""
        blocks = _joined(blocks)
        if all(operand.tensor.verbatim for operand in operands):
            places = [
                place
                for operand, vector in zip(operands, vectors)
                for place in self._places(operand, vector, blocks)
            ]
            if read_ranges(places):
                return
        for operand, vector in zip(operands, vectors):
            for block, part in _parts(vector, blocks):
                view = part.view(np.uint8).data
                tensor = operand.tensor
                self._reader.read_into(operand.source, tensor, block.start, block.stop, view)

    def _places(
        self, operand: Operand, vector: Vector, blocks: Sequence[Block]
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """Where the blocks of an operand are (descriptor, offset in bytes), and where they go."""
        tensor = operand.tensor
        descriptor = self._reader.descriptor(operand.source, tensor)
        for block, part in _parts(vector, blocks):
            yield descriptor, tensor.offset + nbytes(tensor.dtype, block.start), part


def _joined(blocks: Sequence[Block]) -> Sequence[Block]:
    """Blocks that follow each other as one; samples of blocks do not."""
    first, last = blocks[0], blocks[-1]
    if last.stop - first.start == _length(blocks):
        return [Block(first.index, first.start, last.stop)]
    return blocks


def _length(blocks: Sequence[Block]) -> int:
    return sum(block.stop - block.start for block in blocks)


def _parts(vector: Vector, blocks: Sequence[Block]) -> Iterator[tuple[Block, np.ndarray]]:
    """The elements of a vector that belong to each block."""
    data, at = vector.data, 0
    for block in blocks:
        yield block, data[at : at + block.stop - block.start]
        at += block.stop - block.start


def _show(seen: Seen, k: int, vector: Vector, blocks: Sequence[Block]) -> None:
    if seen is not unseen:
        for _, part in _parts(vector, blocks):
            seen(k, part)
