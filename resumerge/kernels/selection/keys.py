"""Keys: unsigned integers in the same order as floats, or as their magnitudes."""

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
    """The bits of ``abs(values)``: uint32, in the order of the magnitudes; one key for all NaN.

    Computed with NumPy, whose integer operations are several times faster than torch's.
    """
    if isinstance(values, Vector):
        return calls.keys(values, calls.MAGNITUDE)
    found: np.ndarray = values.cpu().numpy().view(np.uint32) & _MAGNITUDE
    if found.max(initial=0) > INFINITY:
        found[found > INFINITY] = _NAN_MAGNITUDE
    return found


def ordered_bits(values: Any) -> Bits:
    """Keys in the order of the numbers: uint32; -0 is below 0, and NaN above all."""
    if isinstance(values, Vector):
        return calls.keys(values, calls.ORDERED)
    bits = values.cpu().numpy().view(np.uint32)
    found: np.ndarray = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    found[(bits & _MAGNITUDE) > INFINITY] = _NAN_KEY
    return found


def as_native(values: Any) -> Any:
    """A torch vector as one of the compiled kernels, which compute keys several times faster.

    Without compiled kernels, or on another device, the vector itself.
    """
    if isinstance(values, Vector) or instruction_set() is None or values.device.type != "cpu":
        return values
    return Vector(values.numpy())


KEY_CODES: dict[Key, int] = {magnitude_bits: calls.MAGNITUDE, ordered_bits: calls.ORDERED}
"""The compiled kernels' numbers of these functions."""


def float_of_ordered_bits(key: int) -> float:
    """The number whose `ordered_bits` are this key."""
    bits = np.uint32(key)
    return float((bits ^ _SIGN if bits & _SIGN else ~bits).view(np.float32))
