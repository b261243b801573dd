"""Relations of two tensors that single elements show: a scaled copy, and a rounded one.

Each is proposed by the first elements that differ, and then counted over all that follow: a row has
the share of elements that agree, never a guess from a sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from resumerge.comparison.values import SPACING, Two, rounded, spacing
from resumerge.kernels import row_gram
from resumerge.native import Vector

PROPOSED = 0.98
"""The share of the first elements that differ, in which a relation has to show to be proposed."""

_TOLERANCE = 0.75
"""The largest distance from a scaled number, in steps of the coarser type.

Rounding leaves half a step; an element that was changed is at least one away.
"""


class ScalingCount:
    """The count of elements of the second tensor that are the first's times one factor.

    Args:
        factor: the factor.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._agree = self._elements = 0

    @classmethod
    def proposed(cls, two: Two) -> ScalingCount | None:
        """Return a count of the factor that fits these elements best; None if none fits."""
        products = row_gram([Vector(two.first), Vector(two.second)], len(two.first))
        squares, product = products[0, 0, 0], products[0, 1, 0]
        if not squares or not product:
            return None
        tried = cls(float(product / squares))
        tried.add(two)
        return cls(tried._factor) if tried._agree >= PROPOSED * tried._elements else None

    def add(self, two: Two) -> None:
        """Count further elements."""
        scaled = two.first.astype(np.float64) * self._factor
        values, dtype = two.coarser
        step = spacing(values, dtype)
        if values is two.first and values is not two.second:
            step = step * np.float32(abs(self._factor))
        # Equal numbers tell nothing of a factor, but zeros.
        counted = two.differ | (two.first != 0)
        agree = np.abs(two.second - scaled) <= _TOLERANCE * step
        self._agree += int(np.count_nonzero(agree & counted))
        self._elements += int(np.count_nonzero(counted))

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for the journal."""
        return {"factor": self._factor, "share": self._agree / self._elements}


class RoundingCount:
    """The count of elements that differ, and that one tensor has rounded to a narrower type.

    Args:
        dtype: the narrower type.
        of_first: whether the second tensor is the rounded one.
    """

    def __init__(self, dtype: str, *, of_first: bool) -> None:
        self._dtype, self._of_first = dtype, of_first
        self._agree = self._elements = 0

    @classmethod
    def proposed(cls, two: Two) -> RoundingCount | None:
        """Return a count of the rounding that these elements show; None if they show none."""
        types = dict.fromkeys(("BF16", "F16", *(d for d in two.dtypes if d in SPACING)))
        for dtype in types:
            for of_first in (True, False):
                tried = cls(dtype, of_first=of_first)
                tried.add(two)
                if tried._agree >= PROPOSED * tried._elements:
                    return cls(dtype, of_first=of_first)
        return None

    def add(self, two: Two) -> None:
        """Count further elements."""
        where = two.differ
        exact, narrow = two.first[where], two.second[where]
        if not self._of_first:
            exact, narrow = narrow, exact
        self._agree += int(np.count_nonzero(rounded(exact, self._dtype) == narrow))
        self._elements += len(exact)

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for the journal."""
        share = self._agree / self._elements
        return {"dtype": self._dtype, "of_first": self._of_first, "share": share}
