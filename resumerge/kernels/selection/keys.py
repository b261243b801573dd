"""Keys: whole numbers that are ordered as floats, or their magnitudes, are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from resumerge.native import Vector, calls, instruction_set

_SIGN = np.uint32(0x80000000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)
_NAN_MAGNITUDE = np.uint32(0x7FC00000)
_NAN_KEY = np.uint32(0xFFC00000)

Bits = np.ndarray
Key = Callable[[Any], Bits]


def magnitude_bits(values: Any) -> Bits:
    """The bits of ``abs(values)``: uint32, ordered as the magnitudes are; one key for all NaN.

    In NumPy, whose integer comparisons and selections are several times faster than torch's.
    """
    if isinstance(values, Vector):
        return calls.keys(values, calls.MAGNITUDE)
    found = values.cpu().numpy().view(np.uint32) & _MAGNITUDE
    if found.max(initial=0) > INFINITY:
        found[found > INFINITY] = _NAN_MAGNITUDE
    return found


def ordered_bits(values: Any) -> Bits:
    """Keys of signed numbers: uint32, ordered as the numbers are; -0 is below 0, NaN above all."""
    if isinstance(values, Vector):
        return calls.keys(values, calls.ORDERED)
    bits = values.cpu().numpy().view(np.uint32)
    found = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    found[(bits & _MAGNITUDE) > INFINITY] = _NAN_KEY
    return found


def quickest(values: Any) -> Any:
    """A vector of torch's for the compiled kernels, whose keys are found several times faster.

    Where there are none, or its memory is not the host's, the vector as it is.
    """
    if isinstance(values, Vector) or instruction_set() is None or values.device.type != "cpu":
        return values
    return Vector(values.numpy())


KINDS: dict[Key, int] = {magnitude_bits: calls.MAGNITUDE, ordered_bits: calls.ORDERED}
"""What the compiled kernels call them."""


def from_ordered_bits(key: int) -> float:
    """The number that `ordered_bits` gives this key."""
    bits = np.uint32(key)
    return float((bits ^ _SIGN if bits & _SIGN else ~bits).view(np.float32))
