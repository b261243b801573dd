"""Memory for large arrays."""

from __future__ import annotations

import mmap

import numpy as np

from resumerge.host.system import offered

HUGE_PAGE = 2 << 20
"""The bytes of a huge page of x86-64, and of aarch64 with pages of 4 KiB."""


def mapped(size: int, *, whole: bool = True) -> np.ndarray:
    """Return `size` bytes (uint8) with undefined content.

    A large array has a mapping of its own, which the system gets back with the array: in the memory
    of the allocator it would leave holes. Large arrays of NumPy are in huge pages in any case.

    Args:
        size: the number of bytes.
        whole: whether all of it will be used. Then it is in huge pages, where the system has them:
            a run takes thousands of small ones, more than the processor keeps the addresses of, and
            looking them up is up to a third of the time. Otherwise what is not used takes nothing.
    """
    advice = offered(mmap, "MADV_HUGEPAGE" if whole else "MADV_NOHUGEPAGE")
    if size < HUGE_PAGE or advice is None:
        return np.empty(size, np.uint8)
    try:
        mapping = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        space = np.frombuffer(mapping, np.uint8)
        start = -space.ctypes.data % HUGE_PAGE
        mapping.madvise(advice, start, size - size % HUGE_PAGE)
    except OSError:  # no such pages, or a limit of the address space, of which the allocator tells
        return np.empty(size, np.uint8)
    return space[start : start + size]
