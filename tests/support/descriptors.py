"""Descriptors that should be closed. Another thread may have got the number of one already."""

from __future__ import annotations

import os


def is_open_on(descriptor: int, file: os.stat_result) -> bool:
    """Return whether a descriptor is open, and on this file; not whether its number is in use."""
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:
        return False
