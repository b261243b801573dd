"""Keys: unsigned integers in the same order as floats, or as their magnitudes."""

from __future__ import annotations

from enum import Enum

import numpy as np

from resumerge.native import Vector, _kernels

_SIGN = np.uint32(0x80000000)

Bits = np.ndarray


class Key(Enum):
    """The order of elements."""

    MAGNITUDE = False
    """The order of ``abs(x)``: the key is its bits, and all NaN have one key."""
    NUMBER = True
    """The order of the numbers: -0 is below 0, and NaN above all."""


def keys_of(vector: Vector, key: Key) -> Bits:
    """Return the keys of all elements: uint32."""
    found = np.empty(len(vector), np.uint32)
    _kernels.keys(vector, key.value, found)
    return found


def equal_counts(vector: Vector, key: Key, wanted: int, block: int) -> list[int]:
    """Return how many elements of each block have the key `wanted`."""
    return _kernels.equal_counts(vector, key.value, wanted, block)


def count_nonzero(vector: Vector) -> int:
    """Return the number of elements that are not 0; NaN counts."""
    return len(vector) - sum(equal_counts(vector, Key.MAGNITUDE, 0, max(1, len(vector))))


def float_of_key(key: int) -> float:
    """Return the number that has this key (`Key.NUMBER`)."""
    bits = np.uint32(key)
    return float((bits ^ _SIGN if bits & _SIGN else ~bits).view(np.float32))
