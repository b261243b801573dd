"""A check of descriptors that should be closed: another thread may already have the number."""

from __future__ import annotations

import os


def is_open_on(descriptor: int, file: os.stat_result) -> bool:
    """Return whether a descriptor is open on this file; its number may be in use by another one."""
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:
        return False
