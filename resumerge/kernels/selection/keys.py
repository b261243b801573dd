"""Keys: unsigned integers in the order of floats, or in the order of their magnitudes."""

from __future__ import annotations

from enum import Enum

import numpy as np

from resumerge.native import Vector, _kernels

_SIGN = np.uint32(0x80000000)

Bits = np.ndarray


class Key(Enum):
    """The order of elements."""

    MAGNITUDE = False
    """The order of ``abs(x)``: a key is the bits of ``abs(x)``, and all NaN have the same key."""
    NUMBER = True
    """The order of the numbers: -0 is below 0, and NaN is above all numbers."""


def keys_of(vector: Vector, key: Key) -> Bits:
    """Return the keys of all elements: uint32."""
    keys = np.empty(len(vector), np.uint32)
    _kernels.keys(vector, key.value, keys)
    return keys


def equal_counts(vector: Vector, key: Key, wanted: int, block: int) -> list[int]:
    """Return, for each block of `block` elements, the number of elements with the key `wanted`."""
    return _kernels.equal_counts(vector, key.value, wanted, block)


def count_nonzero(vector: Vector) -> int:
    """Return the number of elements that are not 0, including NaN."""
    return len(vector) - sum(equal_counts(vector, Key.MAGNITUDE, 0, max(1, len(vector))))


def float_of_key(key: int) -> float:
    """Return the number that has this key in the order `Key.NUMBER`."""
    bits = np.uint32(key)
    return float((bits ^ _SIGN if bits & _SIGN else ~bits).view(np.float32))
