"""Round trips over a quantised type: numbers on the grids of types with a few bits.

Rows of a matrix are examined, and groups of consecutive elements of a row, which share a grid in
quantised models. A grid follows from the largest numbers on it, so the quantising program need not
be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from resumerge.comparison.relations.relation import (
    Compared,
    Details,
    Evidence,
    MeasuredRelation,
    narrow_and_exact,
    tensors_are,
)
from resumerge.comparison.values import Two, spacing

_ON_GRID = 0.95
"""The least share of elements that lie on a grid. If a row does not reach the last step of its
grid, another grid is inferred for it."""

_CHANCE = 0.8
"""The largest share of arbitrary numbers near a grid at which lying on the grid is evidence."""

_GROUPS = (0, 128, 64, 32)
"""The numbers of elements that share a grid; 0 for a whole row."""

_ROUNDED = 1.5
"""The largest distance of a stored number from the grid, in steps of its type: the number was
rounded, and so were the numbers that determine the grid."""

_FIRST = 256
"""The elements of the first row on which a grid is tested first."""


class QuantisedCopy(MeasuredRelation):
    """The other tensor, quantised to a few bits and back."""

    name = key = "quantised"
    word = "quantisation round trip"

    def new_evidence(self, dtypes: tuple[str, str]) -> Evidence:
        return GridEvidence(dtypes)

    def holds(self, found: Details) -> bool:
        return bool(found["nearest"] >= 0.5)

    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        details = [tensor["details"] for tensor in tensors]
        kinds = sorted({_kind(tensor_details) for tensor_details in details})
        copy, original = narrow_and_exact(details, first, second)
        share = min(tensor_details["nearest"] for tensor_details in details)
        return (
            f"{tensors_are(tensors, total)} in {copy} on a grid of {' or '.join(kinds)}, as "
            f"quantising {original} and back gives ({share:.2%} or more of the elements are the "
            f"nearest point; seen in {details[0]['rows']} rows of each)"
        )


class GridEvidence(Evidence):
    """The grid that some rows of one of two matrices lie on.

    Args:
        dtypes: the stored types of both matrices.
    """

    def __init__(self, dtypes: tuple[str, str]) -> None:
        self._dtypes = dtypes
        self._grid: dict[str, Any] | None = None

    def propose(self, few: Two, more: Callable[[], Two]) -> None:
        first_dtype, second_dtype = self._dtypes
        if (grid_facts := grid_of(few.second, few.first, second_dtype)) is not None:
            self._grid = {**grid_facts, "of_first": True}
        elif (grid_facts := grid_of(few.first, few.second, first_dtype)) is not None:
            self._grid = {**grid_facts, "of_first": False}

    def add(self, two: Callable[[], Two]) -> None:
        """Do nothing: the rows that were examined are the evidence."""

    def as_json(self, change: float, elements: int, differing: int) -> dict[str, Any] | None:
        return self._grid


def _kind(found: Details) -> str:
    return f"{found['grid']} by " + (f"groups of {found['group']}" if found["group"] else "row")


@dataclass(frozen=True)
class _Grid:
    """A kind of grid.

    Args:
        name: the name of the type in the document, like ``int8``.
        steps: the number of steps from 0 to the largest magnitude, or if the grid is not symmetric
            from the least to the largest number.
        symmetric: whether the grid reaches as far below 0 as above. 0 is a point of all grids.
    """

    name: str
    steps: int
    symmetric: bool


_GRIDS = (
    _Grid("int8", 127, True),
    _Grid("int4", 7, True),
    _Grid("int4", 8, True),
    _Grid("uint8", 255, False),
    _Grid("uint4", 15, False),
)


def grid_of(values: np.ndarray, other: np.ndarray, dtype: str) -> dict[str, Any] | None:
    """Return the grid that a matrix lies on, if it is near another matrix; None if there is none.

    Args:
        values: rows of the matrix, float32.
        other: the same rows of the other matrix.
        dtype: the stored type of the matrix.

    Returns:
        `grid`, like ``int8``; `group`, the elements of a group, 0 for a row; `on`, the share of
        elements on the grid; `nearest`, the share of elements that are the nearest point to the
        other's; `rows`, the number of rows that were examined.
    """
    for group_size in _GROUPS:
        width = group_size or values.shape[1]
        if group_size and (values.shape[1] % group_size or values.shape[1] == group_size):
            continue
        few_groups = _Groups(_first(values, width), _first(other, width), dtype, _FIRST)
        all_groups = _Groups(values.reshape(-1, width), other.reshape(-1, width), dtype)
        for grid, share in zip(_GRIDS, few_groups.shares(_GRIDS)):
            if share < _ON_GRID or few_groups.nearest(grid) is None:
                continue
            share_on_grid = float(all_groups.shares([grid])[0])
            if (
                share_on_grid >= _ON_GRID
                and (share_nearest := all_groups.nearest(grid)) is not None
            ):
                return {
                    "grid": grid.name,
                    "group": group_size,
                    "on": share_on_grid,
                    "nearest": share_nearest,
                    "rows": len(values),
                }
    return None


def _first(values: np.ndarray, width: int) -> np.ndarray:
    """Return the first groups of a matrix's first row: `_FIRST` elements, or one longer group."""
    groups: np.ndarray = values[0].reshape(-1, width)[: max(1, _FIRST // width)]
    return groups


class _Groups:
    """Groups of numbers, each of which may have a grid of its own.

    Args:
        values: the groups, float32, shape ``(groups, elements)``.
        other: the same groups of the other matrix.
        dtype: the stored type of the numbers.
        most: the number of examined elements of each group; None for all. The largest numbers of a
            group are always those of all its elements.
    """

    def __init__(
        self, values: np.ndarray, other: np.ndarray, dtype: str, most: int | None = None
    ) -> None:
        self._whole, self._dtype = values, dtype
        self._values, self._other = values[:, :most], other[:, :most]

    def shares(self, grids: Sequence[_Grid]) -> np.ndarray:
        """Return the share of elements on each grid; 0 if arbitrary numbers would be near it."""
        if not self._used.any():
            return np.zeros(len(grids))
        steps = np.stack([self._step(grid) for grid in grids])
        tolerance = self._tolerance(steps)
        grid_positions = self._values[self._used] / steps
        is_on_grid = np.abs(grid_positions - np.rint(grid_positions)) <= tolerance
        share_by_chance = np.minimum(1, 2 * tolerance).reshape(len(grids), -1).mean(axis=1)
        shares: np.ndarray = is_on_grid.reshape(len(grids), -1).mean(axis=1)
        return np.where(share_by_chance > _CHANCE, 0.0, shares)

    def nearest(self, grid: _Grid) -> float | None:
        """Return the share of elements that are the point of a grid nearest to the other's.

        None if most elements are further than a step from the other's.
        """
        step = self._step(grid)
        distance_in_steps = np.abs(self._other[self._used] - self._values[self._used]) / step
        if float(np.median(distance_in_steps)) > 1:
            return None
        return float((distance_in_steps <= 0.5 + self._tolerance(step)).mean())

    def _step(self, grid: _Grid) -> np.ndarray:
        length = self._magnitude if grid.symmetric else self._length
        step: np.ndarray = length[self._used] / grid.steps
        return step

    def _tolerance(self, step: np.ndarray) -> np.ndarray:
        tolerance: np.ndarray = _ROUNDED * self._spacing / step + 1e-3
        return tolerance

    @cached_property
    def _used(self) -> np.ndarray:
        """A mask of the groups with a number other than 0."""
        used: np.ndarray = self._magnitude[:, 0] > 0
        return used

    @cached_property
    def _spacing(self) -> np.ndarray:
        used = self._values[self._used]
        return spacing(used.ravel(), self._dtype).reshape(used.shape)

    @cached_property
    def _magnitude(self) -> np.ndarray:
        magnitude: np.ndarray = np.abs(self._whole).max(axis=1, keepdims=True)
        return magnitude

    @cached_property
    def _length(self) -> np.ndarray:
        """The distance from the least to the largest number of each group and 0."""
        least, most = (f(self._whole, axis=1, keepdims=True) for f in (np.min, np.max))
        distance: np.ndarray = np.maximum(most, 0) - np.minimum(least, 0)
        return distance
