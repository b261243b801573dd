"""Calls a compiled kernel with Python's vectors, arrays and numbers."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np

from resumerge.native.library import function
from resumerge.native.vector import Vector, address


def call(name: str, *arguments: object) -> int:
    """Call a kernel, without the interpreter's lock.

    Args:
        name: of the kernel, without the instruction set.
        arguments: a vector or several, an array, a number (int64 or float64 in C), a structure's
            bytes, or None for no mask.

    Returns:
        The kernel's result; undefined for a kernel without one.
    """
    result: int = function(name)(*map(_passed, arguments))
    return result


def enough_memory(result: int) -> int:
    """The result of a kernel that allocates scratch memory.

    Raises:
        MemoryError: the kernel could not allocate it.
    """
    if result < 0:
        raise MemoryError("not enough memory for a kernel's scratch buffer")
    return result


def floats(numbers: Sequence[float]) -> ctypes.Array[ctypes.c_float]:
    """An array of float32."""
    return (ctypes.c_float * len(numbers))(*numbers)


def _passed(argument: object) -> object:
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(address(argument))
    if isinstance(argument, Vector):
        return _vectors((argument,))
    if isinstance(argument, (list, tuple)):
        return _vectors(argument)
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    return argument


def _vectors(vectors: Sequence[Vector]) -> bytes:
    """The structures of vectors.h; valid while the vectors exist."""
    fields: list[int] = []
    for vector in vectors:
        base = vector.base
        if base is None:
            fields += (vector.at, 0, vector.dtype, 0)
        else:
            fields += (vector.at, base.at, vector.dtype, base.dtype)
    return struct.pack("PPii" * len(vectors), *fields)
