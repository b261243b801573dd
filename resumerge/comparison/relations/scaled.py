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
        low, high, elements = min(factors), max(factors), sum(t["elements"] for t in tensors)
        mean = sum(t["details"]["factor"] * t["elements"] for t in tensors) / elements
        is_one_factor = high - low <= _SPREAD * abs(mean)
        text = f"{mean:.4g}" if is_one_factor else f"factors from {low:.4g} to {high:.4g}"
        share = min(tensor["details"]["share"] for tensor in tensors)
        return (
            f"{tensors_are(tensors, total)} in {second} what {first} has, scaled by {text} "
            f"({at_least(share)} of the elements)"
        )


class ScalingCount(ElementCount):
    """The count of elements of the second tensor that are the first's times one factor.

    Args:
        factor: the factor.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    @classmethod
    def proposed(cls, two: Two) -> ScalingCount | None:
        products = row_gram([Vector(two.first), Vector(two.second)], len(two.first))
        squares, product = products[0, 0, 0], products[0, 1, 0]
        if not squares or not product:
            return None
        best_factor = float(product / squares)
        return cls(best_factor) if cls(best_factor).is_shown_by(two) else None

    def add(self, two: Two) -> None:
        scaled = two.first.astype(np.float64) * self._factor
        values, dtype = two.coarser
        step = spacing(values, dtype)
        if two.is_first_coarser:
            step = step * np.float32(abs(self._factor))
        # Equal zeros are no evidence of a factor; all other numbers are.
        counted = two.differ | (two.first != 0)
        agree = np.abs(two.second - scaled) <= _TOLERANCE * step
        self.agreeing += int(np.count_nonzero(agree & counted))
        self.counted += int(np.count_nonzero(counted))

    def as_json(self) -> dict[str, Any]:
        return {"factor": self._factor, "share": self.share}
