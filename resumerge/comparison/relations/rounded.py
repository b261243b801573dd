"""A rounded copy: a tensor with the other's numbers, rounded to a narrower type."""

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
    narrow_and_exact,
    tensors_are,
)
from resumerge.comparison.relations.single_elements import ElementCount, ElementEvidence
from resumerge.comparison.values import SPACING, Two, rounded


class RoundedCopy(MeasuredRelation):
    """The other tensor's numbers, rounded to a narrower type."""

    name = key = "rounded"
    word = "rounding"

    def new_evidence(self, dtypes: tuple[str, str]) -> Evidence:
        return ElementEvidence(RoundingCount)

    def holds(self, found: Details) -> bool:
        return bool(found["share"] >= AGREE)

    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        details = [tensor["details"] for tensor in tensors]
        dtypes = sorted({tensor_details["dtype"] for tensor_details in details})
        rounded_model, exact_model = narrow_and_exact(details, first, second)
        share = min(tensor_details["share"] for tensor_details in details)
        return (
            f"{tensors_are(tensors, total)} in {rounded_model} what {exact_model} has, rounded to "
            f"{' or '.join(dtypes)} ({at_least(share)} of the elements that differ)"
        )


class RoundingCount(ElementCount):
    """The count of differing elements that one tensor has rounded to a narrower type.

    Args:
        dtype: the narrower type, as safetensors names it: a key of `SPACING`.
        of_first: whether the second tensor is the rounded one.
    """

    def __init__(self, dtype: str, *, of_first: bool) -> None:
        super().__init__()
        self._dtype, self._of_first = dtype, of_first

    @classmethod
    def proposed(cls, two: Two) -> RoundingCount | None:
        dtypes = dict.fromkeys(
            ("BF16", "F16", *(dtype for dtype in two.dtypes if dtype in SPACING))
        )
        for dtype in dtypes:
            for of_first in (True, False):
                if cls(dtype, of_first=of_first).is_shown_by(two):
                    return cls(dtype, of_first=of_first)
        return None

    def add(self, two: Two) -> None:
        is_different = two.differ
        exact_values, narrow_values = two.first[is_different], two.second[is_different]
        if not self._of_first:
            exact_values, narrow_values = narrow_values, exact_values
        self.agreeing += int(np.count_nonzero(rounded(exact_values, self._dtype) == narrow_values))
        self.counted += len(exact_values)

    def as_json(self) -> dict[str, Any]:
        return {"dtype": self._dtype, "of_first": self._of_first, "share": self.share}
