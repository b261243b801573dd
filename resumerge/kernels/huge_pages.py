"""Memory for large arrays."""

from __future__ import annotations

import mmap

import numpy as np

from resumerge.host.system import offered

HUGE_PAGE = 2 << 20
"""The bytes of a huge page of x86-64, and of aarch64 with pages of 4 KiB."""


def mapped(size: int, *, whole: bool = True) -> np.ndarray:
    """Return `size` bytes (uint8) with undefined content.

    A large array gets its own memory mapping, which returns to the system when the array is freed.
    In the allocator's memory it would leave holes. NumPy puts its large arrays in huge pages
    anyway.

    Args:
        size: the number of bytes.
        whole: whether all bytes will be used. Then they are in huge pages, if the system has them:
            a run has thousands of small pages, more than the processor keeps the addresses of, and
            looking these up takes up to a third of the time. Otherwise unused pages take no memory.
    """
    advice = offered(mmap, "MADV_HUGEPAGE" if whole else "MADV_NOHUGEPAGE")
    if size < HUGE_PAGE or advice is None:
        return np.empty(size, np.uint8)
    try:
        mapping = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        space = np.frombuffer(mapping, np.uint8)
        start = -space.ctypes.data % HUGE_PAGE
        mapping.madvise(advice, start, size - size % HUGE_PAGE)
    except OSError:  # no huge pages, or a limit of the address space
        return np.empty(size, np.uint8)
    return space[start : start + size]
