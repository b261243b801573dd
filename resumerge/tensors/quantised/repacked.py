"""Whole numbers of a few bits, repacked in the order of a weight's elements."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.quantised.codes import Codebook, whole_numbers
from resumerge.tensors.stored import stored_in
from resumerge.tensors.tensor import Tensor

ROWS = 256
"""Rows of packed numbers that are unpacked at once."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Repacked(Tensor):
    """Whole numbers as bytes in the order of a weight's rows. The file has another order.

    A byte holds two numbers of 4 bits of a row, with the first in the lower bits. If numbers have 8
    bits, or rows have an odd length, a byte holds one number. All bytes are held in memory while
    elements are read, because each row of a weight that is stored transposed needs a part of every
    packed row.

    Args:
        packed: the matrix as it is stored, of I32 or U8.
        bits: the bits of a number: 4 or 8.
        along: the dimension of the packed matrix (0 or 1) along which several neighbouring numbers
            are packed into one element.
        order: for each of these numbers, its place in the packed element, 0 for the lowest bits.
        transposed: whether a row of the weight is a column of the packed matrix.
        added: the number that is added to each packed number. `bits` bits of the sum are kept.
        columns: the number of numbers in a row.
    """

    packed: Tensor
    bits: int
    along: int
    order: tuple[int, ...]
    transposed: bool
    columns: int
    added: int = 0

    @classmethod
    def of(
        cls,
        packed: Tensor,
        rows: int,
        columns: int,
        *,
        bits: int,
        along: int,
        order: tuple[int, ...] = (),
        transposed: bool = False,
        added: int = 0,
    ) -> Repacked:
        """Return the numbers of a packed matrix, as a matrix of `rows` rows and `columns` columns.

        Without `order`, the first number has the lowest bits, and the next numbers follow upwards.
        """
        places = order or tuple(range((32 if packed.dtype == "I32" else 8) // bits))
        row_bytes = columns // 2 if _in_pairs(bits, columns) else columns
        return cls(
            name=packed.name,
            dtype="U8",
            shape=(rows, row_bytes),
            packed=packed,
            bits=bits,
            along=along,
            order=places,
            transposed=transposed,
            columns=columns,
            added=added,
        )

    def codebook(self, subtracted: int = 0) -> Codebook:
        """Return the codebook of the bytes: each number minus `subtracted`."""
        return whole_numbers(4 if _in_pairs(self.bits, self.columns) else 8, subtracted)

    @property
    def held_bytes(self) -> int:
        """The bytes of the unpacked numbers, and of the packed matrix while it is unpacked."""
        return self.nbytes + self.packed.nbytes

    @property
    def held_in_turn(self) -> Hashable:
        return "repacked", next(stored_in(self.packed)).source

    def children(self) -> tuple[Tensor, ...]:
        return (self.packed,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [packed] = children
        return replace(self, packed=packed)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if stop == self.numel:
            yield from self.packed.no_longer_read(0, self.packed.numel)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield from ()

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of the whole packed matrix."""
        yield from self.packed.reads(0, self.packed.numel)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        unpacked_bytes = evaluation.held.get(self, self.held_bytes, lambda: self._whole(evaluation))
        out[:] = unpacked_bytes.reshape(-1)[start:stop]

    def as_json(self) -> dict[str, Any]:
        return {
            "repacked": self.packed.as_json(),
            "bits": self.bits,
            "along": self.along,
            "order": list(self.order),
            "transposed": self.transposed,
            "added": self.added,
        }

    def _whole(self, evaluation: Evaluation) -> np.ndarray:
        """Return all bytes, as a matrix of the tensor's shape."""
        raw = np.empty(self.packed.nbytes, np.uint8)
        self.packed.read(evaluation.inner(), 0, self.packed.numel, raw)
        word_type = np.uint32 if self.packed.dtype == "I32" else np.uint8
        packed_matrix, along = raw.view(word_type).reshape(self.packed.shape), self.along
        if self.transposed:
            packed_matrix, along = packed_matrix.T, 1 - along
        unpacked_rows = np.empty(self.shape, np.uint8)
        count = len(self.order)
        for top in range(0, len(packed_matrix), ROWS):
            words = np.ascontiguousarray(packed_matrix[top : top + ROWS])
            numbers = [self._numbers(words, place) for place in self.order]
            if along:
                unpacked_rows[top : top + ROWS] = self._bytes(np.stack(numbers, axis=2))
                continue
            for number, numbers_of_place in enumerate(numbers):
                first_row = top * count + number
                rows = unpacked_rows[first_row : first_row + len(words) * count : count]
                rows[:] = self._bytes(numbers_of_place[: len(rows)])
        return unpacked_rows

    def _numbers(self, words: np.ndarray, place: int) -> np.ndarray:
        """Return the numbers at one place in packed elements, uint8."""
        word_type = words.dtype.type
        numbers = words >> word_type(place * self.bits)
        if self.added:
            numbers += word_type(self.added)
        numbers &= word_type((1 << self.bits) - 1)
        byte_numbers: np.ndarray = numbers.astype(np.uint8, copy=False)
        return byte_numbers

    def _bytes(self, numbers: np.ndarray) -> np.ndarray:
        """Return rows of numbers as bytes, in the form in which they are held."""
        # With no rows, `reshape` could not infer a width of -1.
        numbers_per_row = math.prod(numbers.shape[1:])
        rows: np.ndarray = numbers.reshape(len(numbers), numbers_per_row)[:, : self.columns]
        if _in_pairs(self.bits, self.columns):
            rows = rows[:, ::2] | rows[:, 1::2] << np.uint8(4)
        return rows


def _in_pairs(bits: int, columns: int) -> bool:
    return bits == 4 and columns % 2 == 0
