"""Buffers that a thread reuses for every block run."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import numpy as np

from resumerge.kernels.huge_pages import mapped
from resumerge.native import KINDS, Vector

REUSED = 64 << 20
"""Bytes of the largest allocation that the process keeps for later blocks, in buffers and in the C
library's allocator. Larger allocations are returned to the system when they are freed."""


class _Local(threading.local):
    """The buffers and vectors of one thread, by name."""

    def __init__(self) -> None:
        self.buffers: dict[Hashable, np.ndarray] = {}
        self.vectors: dict[Hashable, Vector] = {}


class Buffers:
    """Named buffers of each thread. A buffer up to `REUSED` grows as needed and is never freed.

    Larger buffers, for whole tensors, are allocated for each use. If threads kept them, their sizes
    would add up.
    """

    def __init__(self) -> None:
        self._local = _Local()

    def take(self, name: Hashable, size: int) -> np.ndarray:
        """Return `size` bytes (uint8) of this thread's buffer with this name.

        The content of the bytes is undefined.
        """
        if size > REUSED:
            return np.empty(size, np.uint8)
        buffers = self._local.buffers
        buffer = buffers.get(name)
        if buffer is None or len(buffer) < size:
            buffer = buffers[name] = mapped(size)
        return buffer[:size]

    def vector(self, name: Hashable, length: int, dtype: int) -> Vector:
        """Return a vector in this thread's buffer with this name, of an element type from `CODES`.

        The vector is kept and returned again, because most block runs have the same length.
        """
        vectors_by_name = self._local.vectors
        vector = vectors_by_name.get(name)
        if vector is None or len(vector) != length or vector.dtype != dtype:
            element_type = KINDS[dtype]
            elements = self.take(name, length * element_type(0).itemsize).view(element_type)
            vector = Vector(elements, dtype)
            if elements.nbytes <= REUSED:
                vectors_by_name[name] = vector
        return vector
