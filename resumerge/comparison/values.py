"""Numbers of two models at the same places, which sums and relations are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from resumerge.kernels import round_to
from resumerge.native import F32, KINDS, Vector
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import code_of

SPACING = {"BF16": 2.0**-7, "F16": 2.0**-10, "F8_E4M3": 2.0**-3, "F8_E5M2": 2.0**-2}
"""The distance from 1 to the next larger number, by type; other types use that of float32."""

_SMALLEST = {"F16": 2.0**-24, "F8_E4M3": 2.0**-9, "F8_E5M2": 2.0**-16}
"""The distance of subnormal numbers, by type; in other types they are too small to occur."""

_EXPONENT = np.uint32(0x7F800000)


@dataclass(frozen=True)
class Two:
    """Elements of two tensors at the same places; all are finite.

    Args:
        first: the elements of the first tensor, float32.
        second: the elements of the second tensor, float32.
        dtypes: the stored types of both tensors, by safetensors' names.
    """

    first: np.ndarray
    second: np.ndarray
    dtypes: tuple[str, str]

    @cached_property
    def difference(self) -> np.ndarray:
        """The second tensor minus the first: float32."""
        difference: np.ndarray = self.second - self.first
        return difference

    @cached_property
    def differ(self) -> np.ndarray:
        """A mask of the elements that are not the same number."""
        mask: np.ndarray = self.first != self.second
        return mask

    def beginning(self, most: int) -> Two:
        """Return at most `most` elements, from the first differing element on."""
        at = int(self.differ.argmax())
        part = slice(at, at + most)
        return Two(self.first[part], self.second[part], self.dtypes)

    @property
    def coarser(self) -> tuple[np.ndarray, str]:
        """The elements and the type of the tensor whose type has fewer digits."""
        return (
            (self.first, self.dtypes[0]) if self.is_first_coarser else (self.second, self.dtypes[1])
        )

    @property
    def is_first_coarser(self) -> bool:
        """Whether the first tensor's type has fewer digits than the second's."""
        first, second = (SPACING.get(dtype, 0.0) for dtype in self.dtypes)
        return first > second


def floats(stored: Vector) -> np.ndarray:
    """Return stored numbers as float32."""
    if stored.dtype == F32:
        data: np.ndarray = stored.data
        return data
    values = np.empty(len(stored), np.float32)
    round_to(stored, Vector(values))
    return values


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 numbers rounded to another type, as float32."""
    narrow_values = np.empty(len(values) * BITS[dtype] // 8, np.uint8).view(KINDS[code_of(dtype)])
    round_to(Vector(np.ascontiguousarray(values)), Vector(narrow_values, code_of(dtype)))
    rounded_values = np.empty(len(values), np.float32)
    round_to(Vector(narrow_values, code_of(dtype)), Vector(rounded_values))
    return rounded_values


def spacing(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return the distance from each number to the next larger magnitude of a type: float32."""
    powers = (values.view(np.uint32) & _EXPONENT).view(np.float32)
    step = np.float32(SPACING.get(dtype, 2.0**-23))
    steps: np.ndarray = np.maximum(powers * step, np.float32(_SMALLEST.get(dtype, 0.0)))
    return steps
