"""A scaled copy: a tensor with the other's numbers times one factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resumerge.comparison.relations.relation import (
    AGREE,
    Compared,
    Details,
    Evidence,
    MeasuredRelation,
    at_least,
    tensors_are,
)
from resumerge.comparison.relations.single_elements import ElementCount, ElementEvidence
from resumerge.comparison.values import Two, spacing
from resumerge.kernels import row_gram
from resumerge.native import Vector

_TOLERANCE = 0.75
"""The largest distance from a scaled number, in steps of the coarser type.

Rounding causes at most half a step; a changed element is at least one step away.
"""

_SAME_FACTOR = 1e-5
"""A factor closer to 1 than this is not a scaling."""

_SPREAD = 0.01
"""The largest difference of factors that count as the same: 16 numbers in bfloat16 determine a
factor no better than that."""


class ScaledCopy(MeasuredRelation):
    """The first tensor's numbers, times one factor."""

    name = key = "scaled"
    word = "scaled copy"

    def new_evidence(self, dtypes: tuple[str, str]) -> Evidence:
        return ElementEvidence(ScalingCount)

    def holds(self, found: Details) -> bool:
        return bool(found["share"] >= AGREE and abs(found["factor"] - 1) > _SAME_FACTOR)

    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        factors = [tensor["details"]["factor"] for tensor in tensors]
        lowest = min(factors)
        highest = max(factors)
        elements = sum(tensor["elements"] for tensor in tensors)
        mean_factor = (
            sum(tensor["details"]["factor"] * tensor["elements"] for tensor in tensors) / elements
        )
        is_one_factor = highest - lowest <= _SPREAD * abs(mean_factor)
        text = (
            f"{mean_factor:.4g}" if is_one_factor else f"factors from {lowest:.4g} to {highest:.4g}"
        )
        share = min(tensor["details"]["share"] for tensor in tensors)
        return (
            f"{tensors_are(tensors, total)} in {second} what {first} has, scaled by {text} "
            f"({at_least(share)} of the elements)"
        )


class ScalingCount(ElementCount):
    """The count of elements of the second tensor that are the first's times one factor.

    Args:
        factor: the factor by which an element of the first is multiplied.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    @classmethod
    def proposed(cls, two: Two) -> ScalingCount | None:
        products = row_gram([Vector(two.first), Vector(two.second)], len(two.first))
        square_of_first, product = products[0, 0, 0], products[0, 1, 0]
        if not square_of_first or not product:
            return None
        best_factor = float(product / square_of_first)
        return cls(best_factor) if cls(best_factor).is_shown_by(two) else None

    def add(self, two: Two) -> None:
        scaled_values = two.first.astype(np.float64) * self._factor
        values, dtype = two.coarser
        step = spacing(values, dtype)
        if two.is_first_coarser:
            step = step * np.float32(abs(self._factor))
        # Equal zeros are no evidence of a factor; all other numbers are.
        is_evidence = two.differ | (two.first != 0)
        is_near = np.abs(two.second - scaled_values) <= _TOLERANCE * step
        self.agreeing += int(np.count_nonzero(is_near & is_evidence))
        self.counted += int(np.count_nonzero(is_evidence))

    def as_json(self) -> dict[str, Any]:
        return {"factor": self._factor, "share": self.share}
