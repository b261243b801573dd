"""Changes of low rank: differences of two matrices such as a merged LoRA adapter causes.

If the rank of the difference is low, a few of its rows span its directions (Frieze, Kannan and
Vempala, "Fast Monte-Carlo algorithms for finding low-rank approximations",
https://doi.org/10.1145/1039488.1039494). So the first rows propose directions, and the whole
difference is projected onto them as it is read: its energy in these directions, and the singular
values, are counted over all elements. Rounding adds noise of full rank. A direction counts if its
singular value is above the largest one of such noise (Marchenko and Pastur,
https://doi.org/10.1070/SM1967v001n04ABEH001994).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resumerge.comparison.relations.relation import (
    AGREE,
    Compared,
    Details,
    Evidence,
    MeasuredRelation,
    tensors_are,
)
from resumerge.comparison.values import Two, spacing
from resumerge.kernels import row_gram
from resumerge.native import Vector

_FEWEST = 16
"""The least number of rows and of columns of a matrix whose rank is examined."""

_MORE = 8
"""The number of directions that are measured beside the proposed ones."""

_MARGIN = 2.0
"""The least ratio of a direction's energy to that of the noise, which differs between rows."""

_EVIDENCE = 2
"""The least number of differing elements, as a multiple of the degrees of freedom of a matrix of
the rank: a few differing elements always have a low rank."""

_APART = 0.9
"""The largest spread of a few rows that may have a low rank, as a share of that of random rows."""

_EXACT = 1e-6
"""The share of the energy below which the arithmetic of the projection is not exact."""


_LITTLE = 0.3
"""The least share of a change's energy at which its rank is reported, if rounding may have made the
rest."""


class LowRankChange(MeasuredRelation):
    """The second tensor is the first one after a change of low rank."""

    name = "low rank"
    key = "low_rank"
    word = "low-rank change"

    def new_evidence(self, dtypes: tuple[str, str]) -> Evidence:
        return LowRankEvidence()

    def holds(self, found: Details) -> bool:
        enough = _LITTLE if found["rounding"] else AGREE
        return bool(found["rank"] <= found["of"] // 4 and found["energy"] >= enough)

    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        details = [tensor["details"] for tensor in tensors]
        ranks = sorted(tensor_details["rank"] for tensor_details in details)
        lowest, highest, median_rank = ranks[0], ranks[-1], ranks[len(ranks) // 2]
        text = (
            f"rank {lowest}"
            if lowest == highest
            else f"rank {median_rank} in most, from {lowest} to {highest}"
        )
        least_energy = min(tensor_details["energy"] for tensor_details in details)
        rounding_note = "; rounding may have made the rest" if least_energy < AGREE else ""
        return (
            f"{tensors_are(tensors, total)} in {second} what {first} has, after a change of low "
            f"rank: {text}, with {least_energy:.1%} or more of the change's energy{rounding_note}"
        )


class LowRankEvidence(Evidence):
    """The energy of a difference in the directions that some rows propose, if they propose any."""

    def __init__(self) -> None:
        self._directions: Directions | None = None

    def propose(self, few: Two, more: Callable[[], Two]) -> None:
        if may_be_low_rank(few.difference):
            self._directions = Directions.proposed(more().difference)

    def add(self, two: Callable[[], Two]) -> None:
        if self._directions is not None:
            self._directions.add(two())

    def as_json(self, change: float, elements: int, differing: int) -> dict[str, Any] | None:
        if self._directions is None:
            return None
        return self._directions.as_json(change, elements, differing)


class Directions:
    """The energy of a difference in a few directions.

    Args:
        directions: the directions as orthonormal columns, float32, shape ``(columns, directions)``.
    """

    def __init__(self, directions: np.ndarray) -> None:
        self._directions = directions
        self._products = np.zeros((directions.shape[1],) * 2)
        self._rounding = 0.0

    @classmethod
    def proposed(cls, rows: np.ndarray) -> Directions | None:
        """Return the directions that some rows propose; None if the rows have no low rank.

        Args:
            rows: rows of the difference, float32.
        """
        count, columns = rows.shape
        if count < _FEWEST or columns < _FEWEST:
            return None
        wide_rows = rows.astype(np.float64)
        energies, vectors = np.linalg.eigh(wide_rows @ wide_rows.T)
        energies, vectors = energies[::-1], vectors[:, ::-1]
        rank = above_noise(energies, float(energies.sum()), count, columns)
        if not rank or rank > 0.6 * count or rank > columns // 4:
            return None
        directions, _ = np.linalg.qr(wide_rows.T @ vectors[:, : min(rank + _MORE, count)])
        return cls(np.ascontiguousarray(directions, np.float32))

    def add(self, two: Two) -> None:
        """Add whole rows."""
        columns = len(self._directions)
        projected = (two.difference.reshape(-1, columns) @ self._directions).astype(np.float64)
        self._products += projected.T @ projected
        step = spacing(*two.coarser).astype(np.float64)
        self._rounding += float(step @ step) / 4

    def as_json(self, change: float, elements: int, differing: int) -> dict[str, Any] | None:
        """Return the numbers for the journal; None if no direction is above the noise.

        Args:
            change: the sum of squares of the whole difference.
            elements: the number of all elements of the matrix, also of those that do not differ.
            differing: the number of its elements that are not 0.

        Returns:
            the `rank`; `of`, the largest possible rank of the matrix; `energy`, the least share of
            the energy that the rank has; and `rounding`, whether rounding may have made the rest.
        """
        columns = len(self._directions)
        rows = elements // columns
        energies = np.linalg.eigvalsh(self._products)[::-1]
        rank = above_noise(energies, change, rows, columns)
        if not rank or differing < _EVIDENCE * rank * (rows + columns):
            return None
        kept_energy = float(energies[:rank].sum())
        return {
            "rank": rank,
            "of": min(rows, columns),
            "energy": min(1.0, kept_energy / change),
            "rounding": change - kept_energy <= self._rounding,
        }


def may_be_low_rank(rows: np.ndarray) -> bool:
    """Return whether a few rows of a difference have fewer directions than rows of full rank.

    The sum of the squares of all cosines between p random rows in r dimensions is about
    ``p (1 + p / r)``. Its computation is fast, and few fine-tunes without a low rank pass the test.
    """
    products = row_gram([Vector(row) for row in rows], rows.shape[1])[..., 0]
    norms = np.sqrt(np.diag(products))
    if not np.isfinite(norms).all() or np.count_nonzero(norms) < _FEWEST // 2:
        return False
    is_nonzero = norms > 0
    cosines = products[is_nonzero][:, is_nonzero] / np.outer(norms[is_nonzero], norms[is_nonzero])
    count = len(cosines)
    direction_count = count / float((cosines**2).sum())
    return bool(direction_count < _APART / (1 + count / rows.shape[1]))


def above_noise(energies: np.ndarray, total: float, rows: int, columns: int) -> int:
    """Return the number of directions with more energy than noise can have in any direction.

    The noise is assumed to have all the energy of the other directions.

    Args:
        energies: squares of singular values, the largest first.
        total: the sum of squares of all elements.
        rows: the number of rows of the matrix.
        columns: the number of columns of the matrix.
    """
    share = _MARGIN * (math.sqrt(rows) + math.sqrt(columns)) ** 2 / (rows * columns)
    other_energy = total
    for rank, energy in enumerate(energies):
        if energy <= share * max(other_energy, _EXACT * total):
            return rank
        other_energy -= float(energy)
    return len(energies)
