"""Kernels that compute again, from smaller numbers, if an intermediate float32 overflows.

Differences, products and sums of finite numbers may be infinite in float32 although the result is
finite. In that case the kernel computes again from the vectors times 2^-24; this product is exact
for all magnitudes above 2^-102. Results of the first computation that are not finite are replaced
by results of the second one. An element, or a sum, therefore depends on its own operands only: an
overflow elsewhere in its block run has no effect on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from resumerge.native import F64, Vector, _kernels

SCALE = 2.0**-24
"""The factor on vectors whose sums overflow."""

Elementwise = Callable[[Sequence[Vector], Vector, float], bool]
"""A function ``compute(vectors, out, factor)`` that computes `out` from the vectors.

All numbers of the vectors have been multiplied by the factor. The function returns whether a
float32 overflowed.
"""


def without_overflow(
    compute: Elementwise,
    vectors: Sequence[Vector],
    out: Vector,
    within: Elementwise | None = None,
) -> None:
    """Compute a result into `out`; where float32 overflows, compute it from smaller numbers.

    Args:
        compute: computes the result; if the vectors are multiplied by a factor, so is the result.
        vectors: the operands of `compute`.
        out: the vector to write to, rounded to its dtype.
        within: computes a sum that `compute` contains, and that may overflow although the result
            is finite; None if there is no such sum.
    """
    if not compute(vectors, out, 1.0):
        return
    size, scaled_vectors = len(out), scaled(vectors)
    first_results, second_results = np.empty(size, np.float32), np.empty(size, np.float32)
    compute(vectors, Vector(first_results), 1.0)
    compute(scaled_vectors, Vector(second_results), SCALE)
    is_first_right = np.isfinite(first_results)
    if within:
        inner_sum, scaled_inner_sum = np.empty(size, np.float32), np.empty(size, np.float32)
        within(vectors, Vector(inner_sum), 1.0)
        within(scaled_vectors, Vector(scaled_inner_sum), SCALE)
        # If the scaled sum is not finite either, an operand is not finite.
        is_first_right &= np.isfinite(inner_sum) | ~np.isfinite(scaled_inner_sum)
    is_first_right |= ~np.isfinite(second_results)  # an operand is not finite
    final_results = np.where(
        is_first_right, first_results, second_results.astype(np.float64) / SCALE
    )
    if out.dtype == F64:
        out.data[:] = final_results
    else:
        _kernels.round_to(Vector(final_results, F64), out)


def intermediate(compute: Elementwise, vectors: Sequence[Vector]) -> Vector:
    """Compute a vector that is meant as an operand of another kernel.

    Returns:
        float32; or float64 if a result, or a number in its computation, overflows float32.
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
    """Compute sums into `out`; where float32 overflows, compute them from smaller numbers.

    Args:
        compute: writes the sums of the vectors, and returns whether a float32 overflowed.
        vectors: the operands of `compute`.
        out: the sums, float64.
        power: the number of factors from the vectors in each term of a sum.
    """
    if compute(vectors, out):
        scaled_sums = np.empty_like(out)
        compute(scaled(vectors), scaled_sums)
        # If the second sum is not finite either, an operand is not finite. The first sum is kept:
        # the factor may turn a small number into 0, whose product with infinity is NaN.
        np.copyto(
            out, scaled_sums / SCALE**power, where=np.isfinite(scaled_sums) & ~np.isfinite(out)
        )


def scaled(vectors: Sequence[Vector]) -> list[Vector]:
    """Return vectors times `SCALE`, as float32; vectors of one base share the scaled base."""
    originals = {id(x): x for x in (v if v.base is None else v.base for v in vectors)}
    scaled_originals = {number: _scaled(x) for number, x in originals.items()}
    return [
        scaled_originals[id(v)] if v.base is None else _scaled(v).less(scaled_originals[id(v.base)])
        for v in vectors
    ]


@np.errstate(over="ignore")
def _scaled(vector: Vector) -> Vector:
    plain_vector = Vector(vector.data, vector.dtype)
    numbers = plain_vector.data
    if plain_vector.dtype != F64:
        numbers = np.empty(len(plain_vector))
        _kernels.round_to(plain_vector, Vector(numbers, F64))
    return Vector((numbers * SCALE).astype(np.float32))
