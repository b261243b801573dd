"""Vectors that the compiled kernels compute on."""

from __future__ import annotations

import ctypes

import numpy as np

F32, BF16, F16 = 0, 1, 2
CODES = {"float32": F32, "bfloat16": BF16, "float16": F16}
"""Element types that kernels read and write, by torch's names."""
CHUNK = 1024
"""Elements that a kernel processes at a time; as in vectors.h."""

_FIRST = ctypes.c_char


class Vector:
    """A flat vector as it is stored, or its difference from a base.

    Args:
        data: its elements: float32, or uint16 with the bits of bfloat16 or float16.
        dtype: the code of the element type, from `CODES`.
        base: a vector without a base, which is subtracted from it; None for none.
        at: the address of the first element, where it is known.
    """

    __slots__ = ("at", "base", "data", "dtype")

    def __init__(
        self, data: np.ndarray, dtype: int = F32, base: Vector | None = None, at: int | None = None
    ) -> None:
        self.data, self.dtype, self.base = data, dtype, base
        self.at = address(data) if at is None else at

    def __len__(self) -> int:
        return len(self.data)

    def less(self, base: Vector) -> Vector:
        """Its difference from a base."""
        return Vector(self.data, self.dtype, base, self.at)

    def every(self, step: int) -> Vector:
        """Every `step`-th element, from the first on: a copy."""
        data = self.data[::step].copy()
        return Vector(data, self.dtype, self.base and self.base.every(step))


def address(array: np.ndarray) -> int:
    """The address of an array's first element."""
    if array.flags.writeable and array.size:
        return ctypes.addressof(
            _FIRST.from_buffer(array.data)
        )  # three times as fast as the other way
    assert array.flags.c_contiguous
    found: int = array.__array_interface__["data"][0]
    return found
