"""Random numbers from a counter-based generator: a number does not depend on earlier draws.

Philox turns a key and a counter into random bits (see `masks/random.py`). NumPy guarantees the bits
of its generators, but not the numbers that it computes from them. This module therefore computes
the numbers itself, with operations that every processor rounds in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from resumerge.kernels.masks.random import philox_key

CHUNK = 1 << 14
"""The number of elements that share a counter; part of the format.

The float64 arrays of a chunk stay in the second-level cache.
"""

WORKING_BYTES = 8 * 8 * CHUNK
"""The total size of the arrays that are in use while a chunk is drawn, in bytes."""

_LOG_2 = 0.6931471805599453
_CENTRE = (
    (3.3871327179e00, 5.0434271938e01, 1.5929113202e02, 5.9109374720e01),
    (1.0, 1.7895169469e01, 7.8757757664e01, 6.7187563600e01),
)
_TAIL = (
    (1.4234372777e00, 2.7568153900e00, 1.3067284816e00, 1.7023821103e-01),
    (1.0, 7.3700164250e-01, 1.2021132975e-01),
)


def uniforms(key: str, start: int, stop: int) -> np.ndarray:
    """Return elements ``start:stop`` of an endless sequence of numbers in (0, 1), as float64.

    Each number is an odd multiple of 2**-33.

    Args:
        key: text that identifies the sequence.
        start: the index of the first element.
        stop: the index after the last element.
    """
    return _drawn(key, start, stop, lambda uniform: uniform)


def normals(key: str, start: int, stop: int) -> np.ndarray:
    """Return elements ``start:stop`` of an endless sequence of standard normal numbers, as float64.

    Each number is the inverse of the normal distribution function at the number of `uniforms` with
    the same index, by Wichura's approximation with a relative error of 2e-7 (algorithm AS 241,
    PPND7, Applied Statistics 37, 1988). Magnitudes are at most 6.4.

    Args:
        key: text that identifies the sequence.
        start: the index of the first element.
        stop: the index after the last element.
    """
    return _drawn(key, start, stop, _normal)


def _drawn(
    key: str, start: int, stop: int, made_of: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    philox = int.from_bytes(philox_key(key), "little")
    numbers = np.empty(stop - start)
    for number in range(start // CHUNK, -(-stop // CHUNK)):
        bits = np.random.Philox(key=philox, counter=number << 64).random_raw(CHUNK // 2)
        uniform = (bits.view(np.uint32).astype(np.float64) + 0.5) * 2.0**-32
        chunk_start = number * CHUNK
        begin, end = max(start, chunk_start), min(stop, chunk_start + CHUNK)
        numbers[begin - start : end - start] = made_of(uniform)[
            begin - chunk_start : end - chunk_start
        ]
    return numbers


def _normal(uniform: np.ndarray) -> np.ndarray:
    q = uniform - 0.5
    r = 0.180625 - q * q
    numbers: np.ndarray = q * _ratio(r, _CENTRE)
    tail = np.flatnonzero(r < 0.0)
    probability = np.minimum(uniform[tail], 1.0 - uniform[tail])
    deviation = _ratio(np.sqrt(-_log(probability)) - 1.6, _TAIL)
    numbers[tail] = np.where(q[tail] < 0.0, -deviation, deviation)
    return numbers


def _ratio(x: np.ndarray, terms: tuple[tuple[float, ...], tuple[float, ...]]) -> np.ndarray:
    """Return the quotient of two polynomials, each evaluated by Horner's rule."""
    numerator, denominator = (_polynomial(x, coefficients) for coefficients in terms)
    ratio: np.ndarray = numerator / denominator
    return ratio


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    total: np.ndarray = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _log(x: np.ndarray) -> np.ndarray:
    """Return the natural logarithm to 1e-13. Libraries are not used: their roundings differ."""
    fraction, exponent = np.frexp(x)
    s = (fraction - 1.0) / (fraction + 1.0)
    series = _polynomial(s * s, tuple(1.0 / k for k in range(1, 30, 2)))
    log: np.ndarray = 2.0 * s * series + exponent * _LOG_2
    return log
