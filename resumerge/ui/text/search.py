"""The values of a search as text."""

from __future__ import annotations


def show_number(value: float) -> str:
    """Return a value of an objective as text."""
    return f"{value:.6g}"


def show_value(value: object) -> str:
    """Return a value of a parameter as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
