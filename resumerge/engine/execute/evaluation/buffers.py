"""Buffers that a thread reuses for every block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from resumerge.native.vector import address
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
        return self.take_at(name, size)[0]

    def take_at(self, name: Hashable, size: int) -> tuple[np.ndarray, int]:
        """The same, and its address: asking NumPy for it is slow."""
        if size > REUSED:
            large = np.empty(size, np.uint8)
            return large, address(large)
        buffers: dict[Any, tuple[np.ndarray, int]] = self._local.__dict__
        found = buffers.get(name)
        if found is None or len(found[0]) < size:
            made = np.empty(size, np.uint8)
            found = buffers[name] = made, address(made)
        return found[0][:size], found[1]

    def plain(self, name: str, size: int) -> memoryview:
        """The same as a plain memoryview, for copies."""
        if size > REUSED:
            return memoryview(bytearray(size))
        buffers: dict[str, bytearray] = self._local.__dict__
        found = buffers.get(name)
        if found is None or len(found) < size:
            found = buffers[name] = bytearray(size)
        return memoryview(found)[:size]
