"""Numbers held to a distance from others."""

from __future__ import annotations

from typing import Any

from resumerge.native import Vector, elements


def limited(values: Any, middle: Any, reach: float) -> Any:
    """``min(max(x, m - reach), m + reach)``, NaN where x or m is; torch's `values` are used up.

    The last addition turns -0 into 0, which processors choose between differently.

    Args:
        reach: above 0.
    """
    if isinstance(values, Vector):
        return elements.limited(values, middle, reach)
    return values.clamp_(middle - reach, middle + reach).add_(0.0)
