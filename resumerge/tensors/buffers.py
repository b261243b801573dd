"""Buffers that a thread reuses for every run."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import numpy as np

from resumerge.kernels.huge_pages import mapped
from resumerge.native import KINDS, Vector

REUSED = 64 << 20
"""Bytes of the largest piece of memory that the process keeps for later blocks, in buffers and in
the C library's allocator. Larger pieces return to the system when they are freed."""


class _Local(threading.local):
    """The buffers and vectors of one thread, by name."""

    def __init__(self) -> None:
        self.buffers: dict[Hashable, np.ndarray] = {}
        self.vectors: dict[Hashable, Vector] = {}


class Buffers:
    """Named buffers of each thread. A buffer up to `REUSED` grows as needed and is never freed.

    Larger ones, for whole tensors, would add up over the threads: they are allocated for each use.
    """

    def __init__(self) -> None:
        self._local = _Local()

    def take(self, name: Hashable, size: int) -> np.ndarray:
        """Return `size` bytes (uint8) of this thread's buffer of that name.

        The content is undefined.
        """
        if size > REUSED:
            return np.empty(size, np.uint8)
        buffers = self._local.buffers
        buffer = buffers.get(name)
        if buffer is None or len(buffer) < size:
            buffer = buffers[name] = mapped(size)
        return buffer[:size]

    def vector(self, name: Hashable, length: int, dtype: int) -> Vector:
        """Return a vector in this thread's buffer of that name, of an element type from `CODES`.

        Most runs have the same length, so the vector is kept and returned again.
        """
        cached = self._local.vectors
        vector = cached.get(name)
        if vector is None or len(vector) != length or vector.dtype != dtype:
            element_type = KINDS[dtype]
            data = self.take(name, length * element_type(0).itemsize).view(element_type)
            vector = Vector(data, dtype)
            if data.nbytes <= REUSED:
                cached[name] = vector
        return vector
