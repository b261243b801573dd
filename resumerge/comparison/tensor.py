"""One tensor of several models, read once in pieces: sums over all of its elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from resumerge.comparison.in_order import InOrder
from resumerge.comparison.models import MatchedTensor, Models, Pair
from resumerge.comparison.relations import MEASURED
from resumerge.comparison.relations.relation import FEW_ROWS, MORE_ROWS
from resumerge.comparison.values import Two, floats
from resumerge.kernels import Distance, count_conflicts, distance, row_gram
from resumerge.native import Vector
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation, as_vector

AT_ONCE = 1 << 18
"""The elements that are compared at once: few enough for the processor's cache."""

PIECE_ELEMENTS = 1 << 20
"""The elements that are read at once; more for matrices with long rows, to read `MORE_ROWS`."""

LARGEST_BYTES = 16 << 20
"""The most bytes of all models together that a thread reads at once."""

Row = dict[str, Any]
"""The row of a tensor in the journal. Sums omit numbers that are not finite."""


class _Block:
    """Elements of all models at the same places; their conversions are kept for all pairs.

    Args:
        stored: the elements of each model that has the tensor, by the model's number.
        dtypes: the stored type of each model's elements.
    """

    def __init__(self, stored: Mapping[int, Vector], dtypes: Mapping[int, str]) -> None:
        self._stored, self._dtypes = stored, dtypes
        self._floats: dict[int, np.ndarray] = {}
        self._pairs: dict[Pair, Two] = {}

    def two(self, pair: Pair) -> Two:
        """Return the elements of a pair."""
        if pair not in self._pairs:
            first_number, second_number = pair
            dtypes = (self._dtypes[first_number], self._dtypes[second_number])
            self._pairs[pair] = Two(self._values(first_number), self._values(second_number), dtypes)
        return self._pairs[pair]

    def _values(self, number: int) -> np.ndarray:
        if number not in self._floats:
            self._floats[number] = floats(self._stored[number])
        return self._floats[number]


class _PairSums:
    """The sums of two tensors, and the evidence for each relation that they may have."""

    def __init__(self, pair: Pair, dtypes: tuple[str, str]) -> None:
        self.pair, self.dtypes = pair, dtypes
        self.differing, self.squares, self.largest = 0, 0.0, 0.0
        self._evidence = {key: relation.new_evidence(dtypes) for key, relation in MEASURED.items()}

    def propose(self, few: Two, more: Callable[[], Two]) -> None:
        """Examine some rows of the two matrices before any elements are added.

        Args:
            few: at most about `FEW_ROWS` rows.
            more: returns more rows, at most `MORE_ROWS`.
        """
        if few.differ.any():
            for evidence in self._evidence.values():
                evidence.propose(few, more)

    def add(self, sums: Distance, block: _Block) -> None:
        """Add the sums and the evidence of further elements.

        Args:
            sums: the sums of these elements.
            block: the elements; they are converted only for pairs that examine single elements.
        """
        if not sums.differing:
            return
        self.differing += sums.differing
        self.squares += sums.square
        self.largest = max(self.largest, sums.largest)
        for evidence in self._evidence.values():
            evidence.add(partial(block.two, self.pair))

    def as_json(self, elements: int) -> dict[str, Any]:
        """Return the sums for the journal."""
        return {
            "differing": self.differing,
            "squares": self.squares,
            "largest": self.largest,
            **{
                key: evidence.as_json(self.squares, elements, self.differing)
                for key, evidence in self._evidence.items()
            },
        }


class TensorComparison:
    """The comparison of one tensor, piece by piece in its order, by one thread.

    Args:
        matched: the tensor, as each model has it; None for a model that lacks it.
        models: all compared models, for their pairs and the base.
    """

    def __init__(self, matched: MatchedTensor, models: Models) -> None:
        self._matched = matched
        self._numbers = [
            number for number, tensor in enumerate(matched.tensors) if tensor is not None
        ]
        self._dtypes = {number: matched.tensors[number].dtype for number in self._numbers}  # type: ignore[union-attr]
        self._squares = dict.fromkeys(self._numbers, 0.0)
        self._not_finite = dict.fromkeys(self._numbers, 0)
        present_pairs = [pair for pair in models.pairs if set(pair) <= set(self._numbers)]
        self._pairs = [
            _PairSums(
                (first_number, second_number),
                (self._dtypes[first_number], self._dtypes[second_number]),
            )
            for first_number, second_number in present_pairs
        ]
        tuned_numbers = self._numbers[1:] if models.has_base and self._numbers[0] == 0 else []
        self._tuned = tuned_numbers if len(tuned_numbers) > 1 and matched.is_float else []
        self._products = np.zeros((len(tuned_numbers), len(tuned_numbers)))
        self._conflicts = np.zeros((len(tuned_numbers), len(tuned_numbers), 2), np.int64)
        self._row = matched.row if 0 < matched.row <= PIECE_ELEMENTS else 1
        self._block = max(1, AT_ONCE // self._row) * self._row

    def compute(self, evaluation: Evaluation, count_read: Callable[[int], None]) -> Row:
        """Read the tensor of all models, and return its row.

        Args:
            evaluation: the means of reading, with the buffers of the calling thread.
            count_read: called with the number of bytes that were read.

        Raises:
            Resumable: a file cannot be read.
        """
        width = sum(BITS[dtype] for dtype in self._dtypes.values())
        wanted_elements = min(
            max(PIECE_ELEMENTS, MORE_ROWS * self._row), 8 * LARGEST_BYTES // width
        )
        piece = max(1, wanted_elements // self._block) * self._block
        readers = {
            number: InOrder(tensor, number, evaluation)
            for number, tensor in enumerate(self._matched.tensors)
            if tensor is not None
        }
        for start in range(0, self._matched.elements, piece):
            stop = min(start + piece, self._matched.elements)
            pieces = {number: reader.next(stop - start) for number, reader in readers.items()}
            count_read(sum(len(piece_bytes) for piece_bytes in pieces.values()))
            if self._matched.is_float:
                if not start and self._row > 1:
                    self._propose(pieces, stop // self._row)
                self._add_piece(pieces, stop - start)
            else:
                self._add_bytes(pieces)
        return self._as_row()

    def _propose(self, pieces: dict[int, np.ndarray], rows: int) -> None:
        """Have each pair examine evenly spaced rows of the first piece."""
        more_rows = np.linspace(0, rows - 1, min(rows, MORE_ROWS)).astype(int)
        few_rows = more_rows[:: max(1, len(more_rows) // FEW_ROWS)]

        for sums in self._pairs:
            select_few, select_all = (
                partial(
                    self._pair_numbers, sums.pair, partial(self._rows, pieces, rows, chosen_rows)
                )
                for chosen_rows in (few_rows, more_rows)
            )
            sums.propose(select_few(), select_all)

    def _pair_numbers(self, pair: Pair, numbers: Callable[[int], np.ndarray]) -> Two:
        """Return the elements of a pair, from a function that returns those of one model."""
        first, second = pair
        return Two(numbers(first), numbers(second), (self._dtypes[first], self._dtypes[second]))

    def _rows(
        self, data: dict[int, np.ndarray], rows: int, chosen: np.ndarray, number: int
    ) -> np.ndarray:
        """Return some of the rows of a model's piece: float32."""
        bits = data[number].reshape(rows, -1)[chosen].ravel()
        return floats(as_vector(bits, self._dtypes[number])).reshape(-1, self._row)

    def _add_bytes(self, data: dict[int, np.ndarray]) -> None:
        """Count the differing elements of tensors that are not floats."""
        for sums in self._pairs:
            first_bytes, second_bytes = (data[number] for number in sums.pair)
            width = BITS[sums.dtypes[0]] // 8
            if len(first_bytes) and not np.array_equal(first_bytes, second_bytes):
                is_different = (first_bytes != second_bytes).reshape(-1, max(1, width)).any(axis=1)
                sums.differing += int(np.count_nonzero(is_different))

    def _add_piece(self, data: dict[int, np.ndarray], elements: int) -> None:
        widths = {number: BITS[self._dtypes[number]] // 8 for number in self._numbers}
        for start in range(0, elements, self._block):
            stop = min(start + self._block, elements)
            self._add_block(
                {
                    number: as_vector(
                        data[number][start * width : stop * width], self._dtypes[number]
                    )
                    for number, width in widths.items()
                }
            )

    def _add_block(self, stored: dict[int, Vector]) -> None:
        squares, distances = self._compared(stored)
        if not all(map(math.isfinite, squares.values())):
            stored = self._zero_where_not_finite(stored)
            squares, distances = self._compared(stored)
        for number, sum_of_squares in squares.items():
            self._squares[number] += sum_of_squares
        block = _Block(stored, self._dtypes)
        for sums in self._pairs:
            sums.add(distances[sums.pair], block)
        if self._tuned:
            self._add_changes([stored[number].less(stored[0]) for number in self._tuned])

    def _compared(self, stored: dict[int, Vector]) -> tuple[dict[int, float], dict[Pair, Distance]]:
        """Return the sum of squares of each model's elements, and the distance of each pair."""
        distances = {
            sums.pair: distance(*(stored[number] for number in sums.pair)) for sums in self._pairs
        }
        squares = {
            number: sum_of_squares
            for pair, pair_distance in distances.items()
            for number, sum_of_squares in zip(pair, pair_distance.squares)
        }
        without_pair = [number for number in self._numbers if number not in squares]
        squares |= {
            number: distance(stored[number], stored[number]).squares[0] for number in without_pair
        }
        return squares, distances

    def _zero_where_not_finite(self, stored: dict[int, Vector]) -> dict[int, Vector]:
        """Return the elements, 0 where any model's is not finite; count those of each model."""
        values = {number: floats(vector) for number, vector in stored.items()}
        is_finite_in_all = np.ones(len(values[self._numbers[0]]), bool)
        for number, model_values in values.items():
            is_finite = np.isfinite(model_values)
            self._not_finite[number] += int(len(model_values) - np.count_nonzero(is_finite))
            is_finite_in_all &= is_finite
        return {
            number: Vector(np.where(is_finite_in_all, model_values, np.float32(0)))
            for number, model_values in values.items()
        }

    def _add_changes(self, changes: Sequence[Vector]) -> None:
        """Add the products of task vectors, and the counts of their sign conflicts."""
        self._products += row_gram(changes, len(changes[0]))[..., 0]
        self._conflicts += count_conflicts(changes)

    def _as_row(self) -> Row:
        count = len(self._matched.tensors)
        square_by_number = self._squares if self._matched.is_float else {}
        return {
            "elements": self._matched.elements,
            "squares": [square_by_number.get(number) for number in range(count)],
            "not_finite": [self._not_finite.get(number, 0) for number in range(count)],
            "pairs": {
                f"{sums.pair[0]}-{sums.pair[1]}": sums.as_json(self._matched.elements)
                for sums in self._pairs
            },
            "task_vectors": {
                "models": self._tuned,
                "products": self._products.tolist(),
                "signs": [
                    [self._tuned[i], self._tuned[j], *self._conflicts[i, j].tolist()]
                    for i, j in combinations(range(len(self._tuned)), 2)
                ],
            }
            if self._tuned
            else None,
        }
