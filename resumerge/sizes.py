"""Sizes, times and counts as text."""

from __future__ import annotations


def show_size(nbytes: float) -> str:
    """A size in decimal units, three digits: ``1.71 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 999.5:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB" if abs(nbytes) < 999.5 else f"{nbytes:.0f} TB"


def show_seconds(seconds: float) -> str:
    """A time: ``0.8 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def show_age(seconds: float) -> str:
    """How long ago something was, in one unit: ``40 s``, ``12 min``, ``5 h``, ``30 days``."""
    for unit, length in (("s", 60), ("min", 60), ("h", 24)):
        if seconds < length:
            return f"{seconds:.0f} {unit}"
        seconds /= length
    return counted(int(seconds), "day")


def show_tick(seconds: float) -> str:
    """A tick of a time axis, to three digits: ``0 s``, ``0.025 s``, ``1.25 s``, ``2 min 5 s``."""
    return f"{seconds:.3g} s" if seconds < 60 else show_seconds(seconds)


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 tensor``, ``2 tensors``."""
    return f"{count} {noun}{'s' * (count != 1)}"
