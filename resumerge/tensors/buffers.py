"""Buffers that a thread reuses for every run."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Hashable

import numpy as np

from resumerge.native import KINDS, Vector

REUSED = 64 << 20
"""Bytes: memory of finished blocks up to this size stays with the process for the next ones; what
is larger is given back at once."""

HUGE_PAGE = 2 << 20
"""Bytes: of x86-64, and of aarch64 with pages of 4 KiB."""


class _Local(threading.local):
    """What one thread has, by name."""

    def __init__(self) -> None:
        self.buffers: dict[Hashable, np.ndarray] = {}
        self.vectors: dict[Hashable, Vector] = {}


class Buffers:
    """Named buffers of each thread; they grow and are never freed.

    Buffers for whole tensors would add up over the threads: those are allocated for each use.
    """

    def __init__(self) -> None:
        self._local = _Local()

    def take(self, name: Hashable, size: int) -> np.ndarray:
        """`size` bytes (uint8) of this thread's buffer of that name; its content is undefined."""
        if size > REUSED:
            return np.empty(size, np.uint8)
        buffers = self._local.buffers
        found = buffers.get(name)
        if found is None or len(found) < size:
            found = buffers[name] = _in_huge_pages(size)
        return found[:size]

    def vector(self, name: Hashable, length: int, dtype: int) -> Vector:
        """A vector in this thread's buffer of that name, of an element type from `CODES`.

        Most runs have one length: its vector is made once.
        """
        vectors = self._local.vectors
        found = vectors.get(name)
        if found is None or len(found) != length or found.dtype != dtype:
            kind = KINDS[dtype]
            data = self.take(name, length * kind(0).itemsize).view(kind)
            found = Vector(data, dtype)
            if data.nbytes <= REUSED:
                vectors[name] = found
        return found


def _in_huge_pages(size: int) -> np.ndarray:
    """`size` bytes (uint8) of memory of their own, in huge pages where the system gives them.

    A run takes thousands of small pages, more than the processor keeps the addresses of: looking
    them up is up to a third of the time. Memory of the allocator would begin and end inside of huge
    pages, and what was used before stays in small ones.
    """
    if size < HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    try:
        mapping = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        space = np.frombuffer(mapping, np.uint8)
        start = -space.ctypes.data % HUGE_PAGE
        mapping.madvise(mmap.MADV_HUGEPAGE, start, size - size % HUGE_PAGE)
    except OSError:  # no such pages, or a limit of the address space, of which the allocator tells
        return np.empty(size, np.uint8)
    return space[start : start + size]
