"""Kernels that compute again, from smaller numbers, where float32 overflows before the result.

Differences, products and sums of finite numbers may be infinite in float32 though the result is
finite. Then the kernel computes once more from vectors times 2^-24, which is exact for all numbers
above 2^-102. Results that were not finite are replaced by those of the second computation. So an
element, or a sum, depends on its own operands alone, whatever else in its run overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from resumerge.native import F64, Vector, _kernels

SCALE = 2.0**-24
"""The factor on vectors whose sums overflow."""

Elementwise = Callable[[Sequence[Vector], Vector, float], bool]
"""A function ``compute(vectors, out, factor)`` that computes `out` from the vectors.

All numbers of the vectors have been multiplied by the factor. It returns whether a float32
overflowed.
"""


def without_overflow(
    compute: Elementwise,
    vectors: Sequence[Vector],
    out: Vector,
    within: Elementwise | None = None,
) -> None:
    """Compute into a vector, and from smaller numbers where float32 overflows.

    Args:
        compute: computes the result, which is multiplied by the same factor as the vectors.
        vectors: the operands of `compute`.
        out: the result, rounded to its type.
        within: computes a sum inside `compute`, which may overflow where the result does not.
    """
    if not compute(vectors, out, 1.0):
        return
    size, small = len(out), scaled(vectors)
    result, from_small = np.empty(size, np.float32), np.empty(size, np.float32)
    compute(vectors, Vector(result), 1.0)
    compute(small, Vector(from_small), SCALE)
    is_right = np.isfinite(result)
    if within:
        inner_sum, inner_small = np.empty(size, np.float32), np.empty(size, np.float32)
        within(vectors, Vector(inner_sum), 1.0)
        within(small, Vector(inner_small), SCALE)
        # Where the smaller sum is not finite either, an operand is not finite.
        is_right &= np.isfinite(inner_sum) | ~np.isfinite(inner_small)
    is_right |= ~np.isfinite(from_small)  # here an operand is not finite
    wide = np.where(is_right, result, from_small.astype(np.float64) / SCALE)
    if out.dtype == F64:
        out.data[:] = wide
    else:
        _kernels.round_to(Vector(wide, F64), out)


def intermediate(compute: Elementwise, vectors: Sequence[Vector]) -> Vector:
    """Return a vector for another kernel, which holds results too large for float32 as well.

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
    """Compute sums, and from smaller numbers where float32 overflows.

    Args:
        compute: a function of the vectors to the sums, which returns whether a float32 overflowed.
        vectors: the operands of `compute`.
        out: the sums, float64.
        power: how many numbers of the vectors are multiplied in a term of a sum.
    """
    if compute(vectors, out):
        from_small = np.empty_like(out)
        compute(scaled(vectors), from_small)
        # Sums that are still not finite have an operand that is not finite. They are kept: times
        # the factor, a small number may become 0, and its product with infinity NaN.
        np.copyto(out, from_small / SCALE**power, where=np.isfinite(from_small) & ~np.isfinite(out))


def scaled(vectors: Sequence[Vector]) -> list[Vector]:
    """Return vectors times `SCALE`, float32. Vectors that shared a base share the scaled base."""
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
