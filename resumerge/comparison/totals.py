"""Sums over elements of two models, which are added up over tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PairTotals:
    """Sums over elements of two models.

    Args:
        elements: the number of compared elements; rows that only some of the models have are left
            out.
        differing: the number of elements whose numbers differ.
        first: the sum of squares of the first model's elements.
        second: the sum of squares of the second model's elements.
        change: the sum of squares of their differences.
        largest: the largest magnitude of a difference.
    """

    elements: int = 0
    differing: int = 0
    first: float = 0.0
    second: float = 0.0
    change: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, row: Mapping[str, Any], pair: tuple[int, int]) -> PairTotals:
        """Return the sums of one tensor, from its row in the journal."""
        sums = row["pairs"][f"{pair[0]}-{pair[1]}"]
        square_of_first, square_of_second = (row["squares"][number] or 0.0 for number in pair)
        return cls(
            row["elements"],
            sums["differing"],
            square_of_first,
            square_of_second,
            sums["squares"],
            sums["largest"],
        )

    def __add__(self, other: PairTotals) -> PairTotals:
        return PairTotals(
            self.elements + other.elements,
            self.differing + other.differing,
            self.first + other.first,
            self.second + other.second,
            self.change + other.change,
            max(self.largest, other.largest),
        )

    @property
    def relative(self) -> float | None:
        """The L2 norm of the change, divided by the first model's; None if that is 0."""
        return math.sqrt(self.change / self.first) if self.first else None

    @property
    def cosine(self) -> float | None:
        """The cosine of the two models' elements; None if the elements of a model are all 0."""
        if not self.first or not self.second:
            return None
        product = (self.first + self.second - self.change) / 2
        return max(-1.0, min(1.0, product / math.sqrt(self.first * self.second)))

    def as_json(self) -> dict[str, Any]:
        """Return the document's figures, computed from the sums."""
        return {
            "elements": self.elements,
            "differing": self.differing,
            "l2": math.sqrt(self.change),
            "relative_l2": self.relative,
            "max_abs": self.largest,
            "cosine": self.cosine,
        }
