"""Sizes, times and counts, converted to text."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 8
"""The most names that a message lists."""


def show_size(nbytes: float) -> str:
    """Return a size in decimal units, with three digits: ``1.71 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 999.5:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB" if abs(nbytes) < 999.5 else f"{nbytes:.0f} TB"


def show_seconds(seconds: float) -> str:
    """Return a duration: ``40 ms``, ``0.8 s``, ``42 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if 0 < seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder} s"
    return f"{minutes // 60} h {minutes % 60} min"


def so_far(what: str, seconds: float) -> str:
    """Return an activity with its time so far, from one second on: ``planning: 5 s so far``."""
    if seconds < 1:
        return what
    duration = f"{int(seconds)} s" if seconds < 60 else show_seconds(int(seconds))
    return f"{what}: {duration} so far"


def show_range(low: float, high: float) -> str:
    """Return a range of durations, coarsely rounded: ``40 s``, ``2 to 5 min``."""
    (least_count, least_unit), (most_count, most_unit) = _coarse(low), _coarse(high)
    if (least_count, least_unit) == (most_count, most_unit):
        return f"{most_count} {most_unit}"
    return (
        f"{least_count} to {most_count} {most_unit}"
        if least_unit == most_unit
        else f"{least_count} {least_unit} to {most_count} {most_unit}"
    )


def show_estimate(seconds: float) -> str:
    """Return a duration that was estimated from a short measurement, as a range."""
    return show_range(seconds / 2, seconds * 2)


def _coarse(seconds: float) -> tuple[int, str]:
    """Return a duration in one unit, rounded to multiples of 5 from 10 on."""
    for unit, seconds_of_unit in (("s", 1), ("min", 60), ("h", 3600)):
        count = seconds / seconds_of_unit
        if count < 57.5 or unit == "h":
            break
    return max(1, round(count) if count < 10 else 5 * round(count / 5)), unit


def show_age(seconds: float) -> str:
    """Return an age: ``40 s``, ``12 min``, ``5 h``, ``30 days``."""
    for unit, units_in_next in (("s", 60), ("min", 60), ("h", 24)):
        if seconds < units_in_next:
            return f"{seconds:.0f} {unit}"
        seconds /= units_in_next
    return counted(int(seconds), "day")


def show_tick(seconds: float) -> str:
    """Return a label of a time axis, with three digits: ``0.025 s``, ``1.25 s``, ``2 min 5 s``."""
    return f"{seconds:.3g} s" if seconds < 60 else show_seconds(seconds)


def some(
    names: Sequence[str], separator: str = ", ", most: int = SHOWN, count: int | None = None
) -> str:
    """Return the first names for a message, and the number of further names.

    Args:
        names: all names, or the first names.
        separator: the text between two names.
        most: the most names that are listed; the others are counted.
        count: the number of all names; None if `names` is complete.
    """
    hidden_count = max(len(names), count or 0) - most
    return separator.join(names[:most]) + (f" and {hidden_count} more" if hidden_count > 0 else "")


def share(part: float, whole: float) -> str:
    """Return a part of a whole as a percentage: ``97.12 %``; 100 % if the whole is 0."""
    return f"{100.0 * part / whole if whole else 100.0:.2f} %"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 tensor``, ``2 tensors``."""
    return f"{count} {noun}{'s' * (count != 1)}"
