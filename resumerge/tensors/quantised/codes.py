"""The numbers that are represented by codes of at most one byte."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from resumerge.kernels import round_to
from resumerge.kernels.quantised import Code, decode
from resumerge.native import Vector
from resumerge.tensors.evaluation import as_vector


@dataclass(frozen=True)
class Codebook:
    """The number that each code of 4 or 8 bits represents.

    Args:
        name: the name in messages and in the ledger.
        numbers: 16 or 256 numbers, indexed by code. A byte holds two codes of 4 bits.
        high_first: whether the first of two codes is in the byte's upper 4 bits.
    """

    name: str
    numbers: tuple[float, ...]
    high_first: bool = False

    @property
    def per_byte(self) -> int:
        """The number of codes in a byte."""
        return 2 if len(self.numbers) == 16 else 1

    @cached_property
    def table(self) -> np.ndarray:
        """The numbers of each byte, in order: shape (256, `per_byte`), float32."""
        numbers = np.array(self.numbers, np.float32)
        if self.per_byte == 1:
            return numbers[:, None]
        codes = np.arange(256)
        numbers_of_halves = [numbers[codes & 15], numbers[codes >> 4]]
        return np.stack(numbers_of_halves[::-1] if self.high_first else numbers_of_halves, axis=1)

    def decode(self, codes: np.ndarray, out: np.ndarray) -> None:
        """Write the numbers that bytes of codes represent.

        Args:
            codes: the bytes, uint8.
            out: the array to write to, float32, `per_byte` numbers for each byte.
        """
        decode(codes, self.table, out)


def whole_numbers(bits: int, subtracted: int) -> Codebook:
    """Return the codebook of whole numbers.

    Args:
        bits: the bits of a code: 4 or 8.
        subtracted: the number that is subtracted from each code.
    """
    numbers = tuple(float(code - subtracted) for code in range(1 << bits))
    return Codebook(f"uint{bits}-{subtracted}" if subtracted else f"uint{bits}", numbers)


def minifloat(sign_and_more: int, fraction_bits: int, bias: int) -> float:
    """Return the number of a code of sign, exponent and fraction, without infinities and NaN.

    Args:
        sign_and_more: the code of 4 bits. Its highest bit is the sign.
        fraction_bits: the number of bits of the fraction, which are the lowest bits.
        bias: the number that is subtracted from the exponent.
    """
    sign, code = (-1.0 if sign_and_more & 8 else 1.0), sign_and_more & 7
    exponent, fraction = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
    fraction_value = fraction / (1 << fraction_bits)
    if exponent == 0:
        return sign * fraction_value * 2.0 ** (1 - bias)
    return sign * (1 + fraction_value) * 2.0 ** (exponent - bias)


def _power_of_two(code: int) -> float:
    return float("nan") if code == 255 else 2.0 ** (code - 127)


E2M1 = Codebook("e2m1", tuple(minifloat(code, 1, 1) for code in range(16)))
"""FP4 with 2 bits of exponent and 1 of fraction (OCP Microscaling Formats, v1.0, section 5.3.3)."""

E8M0 = Codebook("e8m0", tuple(map(_power_of_two, range(256))))
"""Powers of two: 2^(code - 127); 255 is NaN (OCP Microscaling Formats, v1.0, section 5.4.1)."""

INT4 = whole_numbers(4, 8)
"""Whole numbers from -8 to 7."""


def decode_codes(codes: np.ndarray, code: Code, out: np.ndarray) -> None:
    """Write the numbers that codes of some kind represent.

    Args:
        codes: bytes (uint8), each with one or two codes.
        code: the kind of the codes, which determines whether a byte has one or two.
        out: the array to write to, float32.
    """
    if code is Code.E4M3:
        round_to(as_vector(codes, "F8_E4M3"), Vector(out))
    else:
        (INT4 if code is Code.INT4 else E2M1).decode(codes, out)
