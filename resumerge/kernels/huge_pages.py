"""Memory for large arrays, in huge pages if the system has them."""

from __future__ import annotations

import mmap

import numpy as np

from resumerge.host.system import offered

HUGE_PAGE = 2 << 20
"""The size of a huge page in bytes, on x86-64 and on aarch64 with pages of 4 KiB."""


def mapped(size: int, *, whole: bool = True) -> np.ndarray:
    """Return `size` bytes (uint8) with undefined content.

    A large array has its own memory mapping, which returns to the system when the array is freed.
    In the allocator's memory, a freed array would leave a hole. Where a mapping is not possible,
    the array is allocated by NumPy, which requests huge pages for large arrays.

    Args:
        size: the number of bytes.
        whole: whether all bytes will be used. If so, they are in huge pages where the system has
            them. A block run would otherwise have thousands of small pages, more than the processor
            caches addresses for, and address translation would take up to a third of the time. If
            not all bytes will be used, unused pages take no memory.
    """
    advice = offered(mmap, "MADV_HUGEPAGE" if whole else "MADV_NOHUGEPAGE")
    if size < HUGE_PAGE or advice is None:
        return np.empty(size, np.uint8)
    try:
        mapping = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        space = np.frombuffer(mapping, np.uint8)
        start = -space.ctypes.data % HUGE_PAGE
        mapping.madvise(advice, start, size - size % HUGE_PAGE)
    except OSError:  # the system has no huge pages, or limits the address space
        return np.empty(size, np.uint8)
    return space[start : start + size]
