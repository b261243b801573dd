"""Clamping to a distance from other numbers."""

from __future__ import annotations

from resumerge.native import Vector, _kernels


def clamp_to_distance(values: Vector, center: Vector, distance: float, out: Vector) -> None:
    """``min(max(x, c - distance), c + distance)``, NaN where x or c is NaN, and never -0.

    Args:
        distance: above 0.
    """
    _kernels.clamp_to_distance(values, center, distance, out)
