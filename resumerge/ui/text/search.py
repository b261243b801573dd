"""The values of a search as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def show_batches(search: Mapping[str, Any]) -> str:
    """Return the sizes of batches and of parallel evaluation as text; empty for single trials.

    Args:
        search: one of the searches of ``status --json``, or the document of ``search --json``.
    """
    batch_size, jobs = search["batch"] or 1, search.get("jobs") or 1
    if batch_size == 1:
        return ""
    return f"in batches of {batch_size}" + (f", {jobs} evaluated at a time" if jobs > 1 else "")


def show_number(value: float) -> str:
    """Return a value of an objective as text."""
    return f"{value:.6g}"


def show_value(value: object) -> str:
    """Return a value of a parameter as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
