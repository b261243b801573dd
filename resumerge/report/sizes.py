"""Sizes, times and counts for people, and back."""

from __future__ import annotations

import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a size as written: ``5GB`` and ``5G`` are 5e9, ``5GiB`` is 5 * 2**30.

    ``5B`` is 5e9 too: nobody means five bytes, and mergekit's tutorials write 5 billion like that.

    Raises:
        ValueError: not a size, or zero.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is not a size; write one like 5GB, 500MB or 4GiB")
    factor = (_BINARY if match[3] else _UNITS)[match[2].lower()]
    if not match[2] and text.strip()[-1] in "bB":
        factor = 10**9
    size = int(float(match[1]) * factor)
    if size <= 0:
        raise ValueError(f"{text!r} is not a size above zero")
    return size


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


def show_tick(seconds: float) -> str:
    """A time at an axis, to three digits: ``0 s``, ``0.025 s``, ``1.25 s``, ``2 min 5 s``."""
    return f"{seconds:.3g} s" if seconds < 60 else show_seconds(seconds)


def counted(count: int, noun: str) -> str:
    """So many of something: ``1 tensor``, ``2 tensors``."""
    return f"{count} {noun}{'s' * (count != 1)}"
