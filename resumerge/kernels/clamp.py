"""Clamping to a distance from other numbers."""

from __future__ import annotations

from typing import Any

from resumerge.native import Vector, elements


def clamp_to_distance(values: Any, center: Any, distance: float) -> Any:
    """``min(max(x, c - distance), c + distance)``, NaN where x or c is NaN.

    The last addition turns -0 into 0: processors differ in which of them they return. torch's
    `values` are overwritten.

    Args:
        distance: above 0.
    """
    if isinstance(values, Vector):
        return elements.clamp_to_distance(values, center, distance)
    return values.clamp_(center - distance, center + distance).add_(0.0)
