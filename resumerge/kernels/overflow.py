"""Kernels that compute again, from smaller numbers, where float32 overflows before the result.

Differences, products and sums of finite numbers may be infinite in float32 though the result is
not. Then the kernel computes once more from vectors times 2^-24, which is exact for all numbers
above 2^-102, and what was not finite is taken from there. So an element (or a sum) depends on its
own operands alone, whatever else overflows in its run, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from resumerge.native import F64, Vector, _kernels

SCALE = 2.0**-24
"""The factor on vectors whose sums overflow."""

Elementwise = Callable[[Sequence[Vector], Vector, float], bool]
"""A function that computes from vectors, which have a factor on them, into another vector.

It returns whether a float32 overflowed.
"""


def without_overflow(
    compute: Elementwise,
    vectors: Sequence[Vector],
    out: Vector,
    within: Elementwise | None = None,
) -> None:
    """Compute into a vector; where float32 overflows, from smaller numbers.

    Args:
        compute: a function whose result has the factor that the vectors have.
        vectors: what it computes from.
        out: the result, rounded to its type.
        within: a sum that the result depends on, which may overflow where the result does not.
    """
    if not compute(vectors, out, 1.0):
        return
    size, small = len(out), scaled(vectors)
    result, again = np.empty(size, np.float32), np.empty(size, np.float32)
    compute(vectors, Vector(result), 1.0)
    compute(small, Vector(again), SCALE)
    is_right = np.isfinite(result)
    if within:
        total, less = np.empty(size, np.float32), np.empty(size, np.float32)
        within(vectors, Vector(total), 1.0)
        within(small, Vector(less), SCALE)
        is_right &= np.isfinite(total) | ~np.isfinite(less)  # or an operand is not finite itself
    is_right |= ~np.isfinite(again)  # an operand is not finite itself
    wide = np.where(is_right, result, again.astype(np.float64) / SCALE)
    if out.dtype == F64:
        out.data[:] = wide
    else:
        _kernels.round_to(Vector(wide, F64), out)


def intermediate(compute: Elementwise, vectors: Sequence[Vector]) -> Vector:
    """Return a vector that another kernel goes on with: what is too large for float32 is kept.

    Returns:
        float32; float64 where float32 overflows.
    """
    out = Vector(np.empty(len(vectors[0]), np.float32))
    if compute(vectors, out, 1.0):
        out = Vector(np.empty(len(out)), F64)
        without_overflow(compute, vectors, out)
    return out


def sums_without_overflow(
    compute: Callable[[Sequence[Vector], np.ndarray], bool],
    vectors: Sequence[Vector],
    out: np.ndarray,
    power: int,
) -> None:
    """Compute sums; where float32 overflows, from smaller numbers.

    Args:
        compute: a function of the vectors to the sums, which returns whether a float32 overflowed.
        vectors: what is summed up.
        out: the sums: float64.
        power: the number of factors from the vectors that a term has.
    """
    if compute(vectors, out):
        again = np.empty_like(out)
        compute(scaled(vectors), again)
        # Where they are not finite either, an operand is not: its product with a number that is
        # too small for the factor would be another.
        np.copyto(out, again / SCALE**power, where=np.isfinite(again) & ~np.isfinite(out))


def scaled(vectors: Sequence[Vector]) -> list[Vector]:
    """Return vectors times `SCALE`: float32; those that have one base still have one."""
    plain = {id(x): x for x in (v if v.base is None else v.base for v in vectors)}
    smaller = {number: _scaled(x) for number, x in plain.items()}
    return [
        smaller[id(v)] if v.base is None else _scaled(v).less(smaller[id(v.base)]) for v in vectors
    ]


@np.errstate(over="ignore")
def _scaled(vector: Vector) -> Vector:
    stored = Vector(vector.data, vector.dtype)
    wide = stored.data
    if stored.dtype != F64:
        wide = np.empty(len(stored))
        _kernels.round_to(stored, Vector(wide, F64))
    return Vector((wide * SCALE).astype(np.float32))
