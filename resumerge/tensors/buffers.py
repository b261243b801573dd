"""Buffers that a thread reuses for every run."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import numpy as np

from resumerge.kernels.huge_pages import mapped
from resumerge.native import KINDS, Vector

REUSED = 64 << 20
"""Bytes: memory of finished blocks up to this size stays with the process for the next ones; what
is larger is given back at once."""


class _Local(threading.local):
    """The buffers and vectors of one thread, by name."""

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
        """Return `size` bytes (uint8) of this thread's buffer of that name.

        The content is undefined.
        """
        if size > REUSED:
            return np.empty(size, np.uint8)
        buffers = self._local.buffers
        found = buffers.get(name)
        if found is None or len(found) < size:
            found = buffers[name] = mapped(size)
        return found[:size]

    def vector(self, name: Hashable, length: int, dtype: int) -> Vector:
        """Return a vector in this thread's buffer of that name, of an element type from `CODES`.

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
