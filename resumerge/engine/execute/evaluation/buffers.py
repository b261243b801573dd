"""Buffers that a thread reuses for every run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from resumerge.native import KINDS, Vector
from resumerge.planning.estimates.memory import REUSED

Seen = Callable[[int, np.ndarray], None]
"""Is called with the number of an operand and its bytes, which are valid during the call."""


def unseen(operand: int, data: np.ndarray) -> None:
    """For reads that nobody looks at."""


class Buffers:
    """Named byte buffers of each thread; they grow and are never freed.

    Buffers for whole tensors would add up over the threads: those are allocated for each use.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def take(self, name: Hashable, size: int) -> np.ndarray:
        """`size` bytes (uint8) of this thread's buffer of that name; its content is undefined."""
        if size > REUSED:
            return np.empty(size, np.uint8)
        buffers: dict[Any, np.ndarray] = self._local.__dict__
        found = buffers.get(name)
        if found is None or len(found) < size:
            found = buffers[name] = np.empty(size, np.uint8)
        return found[:size]

    def vector(self, name: Hashable, length: int, dtype: int) -> Vector:
        """A vector in this thread's buffer of that name, of an element type from `CODES`."""
        kind = np.dtype(KINDS[dtype])
        return Vector(self.take(name, length * kind.itemsize).view(kind), dtype)
