"""What the compiled kernels compute on."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:
    from resumerge import numpy_later as np


F32, BF16, F16 = 0, 1, 2
CODES = {"float32": F32, "bfloat16": BF16, "float16": F16}
"""Element types that kernels read and write, by torch's names."""
CHUNK = 1024
"""Elements that kernels work on at a time; as in vectors.h."""


@dataclass(frozen=True, slots=True)
class Vector:
    """A flat vector as it is stored, or its difference from a base.

    Args:
        data: its elements: float32, or uint16 with the bits of bfloat16 or float16.
        dtype: which of these, a code.
        base: what is subtracted from it, itself without a base; None for nothing.
    """

    data: np.ndarray
    dtype: int = F32
    base: Vector | None = None

    def __len__(self) -> int:
        return len(self.data)

    def every(self, step: int) -> Vector:
        """One element in so many, from the first on."""
        data = np.ascontiguousarray(self.data[::step])
        return Vector(data, self.dtype, self.base and self.base.every(step))


class _Vector(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("base_dtype", ctypes.c_int32),
    )


def address(array: np.ndarray) -> int:
    """Of its first element."""
    found: int = array.__array_interface__["data"][0]
    return found


def passed(vectors: Sequence[Vector]) -> Any:
    """An array of vectors, as the kernels take them; to be used before the vectors are dropped."""
    found = (_Vector * len(vectors))()
    for one, vector in zip(found, vectors):
        one.data, one.dtype = address(vector.data), vector.dtype
        if vector.base is not None:
            one.base, one.base_dtype = address(vector.base.data), vector.base.dtype
    return found
