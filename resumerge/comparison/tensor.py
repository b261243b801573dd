"""One tensor of several models, read once in pieces: sums over all of its elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from resumerge.comparison.models import MatchedTensor, Models, Pair
from resumerge.comparison.relations.low_rank import PROPOSING_ROWS, Directions, LowRankChange
from resumerge.comparison.relations.proposals import FIRST_ELEMENTS
from resumerge.comparison.relations.quantised import SEEN_ROWS, QuantisedCopy, grid_of
from resumerge.comparison.relations.rounded import RoundedCopy, RoundingCount
from resumerge.comparison.relations.scaled import ScaledCopy, ScalingCount
from resumerge.comparison.values import Two, floats
from resumerge.kernels import row_gram
from resumerge.native import Vector
from resumerge.tensors.dtypes import BITS, nbytes
from resumerge.tensors.evaluation import Evaluation

AT_ONCE = 1 << 18
"""Elements that are compared at once, so that they are in the processor's cache."""

PIECE = 1 << 20
"""Elements that are read at once; more of matrices with long rows, to have `PROPOSING_ROWS`."""

LARGEST_BYTES = 16 << 20
"""Bytes of all models that a thread reads at once."""

Row = dict[str, Any]
"""What is known of a tensor, as the journal has it. Sums leave out numbers that are not
finite."""


class _PairSums:
    """The sums of two tensors."""

    def __init__(self, pair: Pair, dtypes: tuple[str, str]) -> None:
        self.pair, self.dtypes = pair, dtypes
        self.differing, self.squares, self.largest = 0, 0.0, 0.0
        self._counts: list[ScalingCount | RoundingCount] | None = None
        self._directions: Directions | None = None
        self._grid: dict[str, Any] | None = None

    def propose(self, first: np.ndarray, second: np.ndarray) -> None:
        """Look at some rows of the two matrices (float32) before anything is added."""
        if np.array_equal(first, second):
            return
        self._directions = Directions.proposed(second - first)
        rows = max(1, len(first) // SEEN_ROWS)
        sides = (first[::rows], second[::rows])
        for values, other, of_first in ((*sides[::-1], True), (*sides, False)):
            found = grid_of(values, other, self.dtypes[of_first])
            if found is not None:
                self._grid = {**found, "of_first": of_first}
                return

    def add(self, first: np.ndarray, second: np.ndarray, difference: np.ndarray) -> None:
        """Add elements, of which at least one differs in its bits."""
        two = Two(first, second, difference, self.dtypes)
        differing = int(np.count_nonzero(two.differ))
        if not differing:
            return
        self.differing += differing
        self.squares += _square(difference)
        self.largest = max(self.largest, float(difference.max()), -float(difference.min()))
        if self._directions is not None:
            self._directions.add(two)
        if self._counts is None:
            few = two.beginning(FIRST_ELEMENTS)
            proposed = (kind.proposed(few) for kind in (ScalingCount, RoundingCount))
            self._counts = [count for count in proposed if count is not None]
        for count in self._counts:
            count.add(two)

    def as_json(self, elements: int) -> dict[str, Any]:
        """Return the sums for the journal."""
        counts = {type(count): count.as_json() for count in self._counts or ()}
        return {
            "differing": self.differing,
            "squares": self.squares,
            "largest": self.largest,
            ScaledCopy.key: counts.get(ScalingCount),
            RoundedCopy.key: counts.get(RoundingCount),
            QuantisedCopy.key: self._grid,
            LowRankChange.key: self._directions
            and self._directions.as_json(self.squares, elements, self.differing),
        }


class TensorComparison:
    """The comparison of one tensor, piece by piece in its order, by one thread.

    Args:
        unit: the tensor.
        models: the models.
    """

    def __init__(self, unit: MatchedTensor, models: Models) -> None:
        self._unit = unit
        self._numbers = [n for n, tensor in enumerate(unit.tensors) if tensor is not None]
        self._dtypes = {n: unit.tensors[n].dtype for n in self._numbers}  # type: ignore[union-attr]
        self._squares = dict.fromkeys(self._numbers, 0.0)
        self._not_finite = dict.fromkeys(self._numbers, 0)
        pairs = [pair for pair in models.pairs if set(pair) <= set(self._numbers)]
        self._pairs = [_PairSums((a, b), (self._dtypes[a], self._dtypes[b])) for a, b in pairs]
        tuned = self._numbers[1:] if models.has_base and self._numbers[0] == 0 else []
        self._tuned = tuned if len(tuned) > 1 and unit.is_float else []
        self._products = np.zeros((len(tuned), len(tuned)))
        self._signs = {two: [0, 0] for two in combinations(self._tuned, 2)}
        self._row = unit.row if 0 < unit.row <= PIECE else 1
        self._block = max(1, AT_ONCE // self._row) * self._row

    def compute(self, evaluation: Evaluation, moved: Callable[[int], None]) -> Row:
        """Read the tensor of all models, and return what is known of it.

        Args:
            evaluation: the means of reading.
            moved: called with the bytes that were read.

        Raises:
            Resumable: a file cannot be read.
        """
        width = sum(BITS[dtype] for dtype in self._dtypes.values())
        wanted = min(max(PIECE, PROPOSING_ROWS * self._row), 8 * LARGEST_BYTES // width)
        piece = max(1, wanted // self._block) * self._block
        for start in range(0, self._unit.elements, piece):
            stop = min(start + piece, self._unit.elements)
            data = {n: self._read(evaluation, n, start, stop) for n in self._numbers}
            moved(sum(len(found) for found in data.values()))
            if self._unit.is_float:
                if not start and self._row > 1:
                    self._propose(data, stop // self._row)
                self._add_piece(evaluation, data, stop - start)
            else:
                self._add_bytes(data)
        return self._as_row()

    def _read(self, evaluation: Evaluation, number: int, start: int, stop: int) -> np.ndarray:
        tensor = self._unit.tensors[number]
        assert tensor is not None
        data = evaluation.take(("raw", number), nbytes(tensor.dtype, stop - start))
        tensor.read(evaluation.inner(), start, stop, data)
        return data

    def _propose(self, data: dict[int, np.ndarray], rows: int) -> None:
        """Have each pair look at rows of the first piece, evenly spaced."""
        chosen = np.linspace(0, rows - 1, min(rows, PROPOSING_ROWS)).astype(int)
        values = {}
        for n, raw in data.items():
            bits = np.ascontiguousarray(raw.reshape(rows, -1)[chosen]).ravel()
            found = floats(bits, self._dtypes[n], np.empty(len(chosen) * self._row, np.float32))
            values[n] = found.reshape(-1, self._row)
        for sums in self._pairs:
            sums.propose(*(values[n] for n in sums.pair))

    def _add_bytes(self, data: dict[int, np.ndarray]) -> None:
        """Count what differs between elements that are not floats."""
        for sums in self._pairs:
            first, second = (data[n] for n in sums.pair)
            width = BITS[sums.dtypes[0]] // 8
            if len(first) and not np.array_equal(first, second):
                differ = (first != second).reshape(-1, max(1, width)).any(axis=1)
                sums.differing += int(np.count_nonzero(differ))

    def _add_piece(
        self, evaluation: Evaluation, data: dict[int, np.ndarray], elements: int
    ) -> None:
        widths = {n: BITS[self._dtypes[n]] // 8 for n in self._numbers}
        size = 4 * min(self._block, elements)
        buffers = {n: evaluation.take(("floats", n), size).view(np.float32) for n in self._numbers}
        for start in range(0, elements, self._block):
            stop = min(start + self._block, elements)
            raw = {n: data[n][start * width : stop * width] for n, width in widths.items()}
            values = {
                n: floats(raw[n], self._dtypes[n], buffers[n][: stop - start])
                for n in self._numbers
            }
            self._add_block(raw, values)

    def _add_block(self, raw: dict[int, np.ndarray], values: dict[int, np.ndarray]) -> None:
        squares = {n: _square(found) for n, found in values.items()}
        if not all(map(math.isfinite, squares.values())):
            values = self._without_what_is_not_finite(values)
            squares = {n: _square(found) for n, found in values.items()}
        for n, square in squares.items():
            self._squares[n] += square
        changes: dict[Pair, np.ndarray] = {}
        for sums in self._pairs:
            first, second = sums.pair
            if sums.dtypes[0] == sums.dtypes[1] and np.array_equal(raw[first], raw[second]):
                continue
            changes[sums.pair] = values[second] - values[first]
            sums.add(values[first], values[second], changes[sums.pair])
        if self._tuned:
            self._add_changes([changes.get((0, n)) for n in self._tuned])

    def _without_what_is_not_finite(self, values: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return the elements, 0 in all models where one is not finite; count these for each."""
        finite = np.ones(len(values[self._numbers[0]]), bool)
        for n, found in values.items():
            is_finite = np.isfinite(found)
            self._not_finite[n] += int(len(found) - np.count_nonzero(is_finite))
            finite &= is_finite
        return {n: np.where(finite, found, np.float32(0)) for n, found in values.items()}

    def _add_changes(self, changes: Sequence[np.ndarray | None]) -> None:
        """Add the products of task vectors, and the signs in which they agree or not."""
        length = next((len(change) for change in changes if change is not None), 0)
        if not length:
            return
        whole = [np.zeros(length, np.float32) if c is None else c for c in changes]
        self._products += row_gram([Vector(change) for change in whole], length)[..., 0]
        signs = {n: _signs(change) for n, change in zip(self._tuned, whole)}
        for (a, b), counts in self._signs.items():
            product = signs[a] * signs[b]
            counts[0] += int(np.count_nonzero(product))
            counts[1] += int(np.count_nonzero(product < 0))

    def _as_row(self) -> Row:
        count = len(self._unit.tensors)
        squares = self._squares if self._unit.is_float else {}
        return {
            "elements": self._unit.elements,
            "squares": [squares.get(n) for n in range(count)],
            "not_finite": [self._not_finite.get(n, 0) for n in range(count)],
            "pairs": {
                f"{sums.pair[0]}-{sums.pair[1]}": sums.as_json(self._unit.elements)
                for sums in self._pairs
            },
            "task_vectors": {
                "models": self._tuned,
                "products": self._products.tolist(),
                "signs": [[a, b, *counts] for (a, b), counts in self._signs.items()],
            }
            if self._tuned
            else None,
        }


def _square(values: np.ndarray) -> float:
    """Return the sum of squares, in float64 and in the order of all kernels."""
    return float(row_gram([Vector(values)], len(values))[0, 0, 0])


def _signs(values: np.ndarray) -> np.ndarray:
    """Return 1, 0 or -1 for each element: int8."""
    found: np.ndarray = (values > 0).view(np.int8) - (values < 0).view(np.int8)
    return found
