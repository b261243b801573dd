"""Measurements of each block: what a merge did to its numbers.

That a vector equals another one, and what is not finite, is told of all elements. Everything else
is measured on the first 64th of a block, 2^12 elements at least: sums over all elements would take
a fifth of the time of a linear merge. What is measured depends on the block alone, and so does
the order of the sums: element e of each 512 is added to lane e mod 16 in float32, the lanes over
the 512s in float64, and to each other at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.native import Vector, _kernels
from resumerge.native._kernels import MEASURED_MODEL_SUMS, MEASURED_SUMS

UNCHANGED, EQUAL = 6, 3
"""The places of these sums among those of a block, and of a model."""

LEAST_MEASURED = 1 << 12
"""Elements of a block that are measured, at least."""


def measured_elements(block: int) -> int:
    """Return how many elements are measured of a block of so many, the first ones."""
    return min(block, max(LEAST_MEASURED, -(-block // 64)))


def measured_bytes(length: int, block: int) -> int:
    """Return the bytes of the exact results that are kept of so many elements."""
    whole, rest = divmod(length, block)
    measured = measured_elements(block)
    return 4 * (whole * measured + min(rest, measured))


def keeping_exact(out: Vector, block: int, buffer: np.ndarray) -> Vector:
    """Return a vector of results that also keeps those that are measured before it rounds them.

    Args:
        out: the vector of the results of the run.
        block: the elements of a block of it.
        buffer: room for `measured_bytes`, uint8.
    """
    exact = buffer.view(np.float32)
    exact.fill(np.nan)  # what is not written is noticed
    return Vector(out.data, out.dtype, None, exact, block, measured_elements(block))


def block_of_results(out: Vector, part: slice) -> Vector:
    """Return the results of one block of a run, which keep what those of the run keep.

    Args:
        out: the vector of the results of the run.
        part: the elements of the block in it.
    """
    data = out.data[part]
    if out.exact is None:
        return Vector(data, out.dtype)
    first = part.start // out.block * out.measured
    exact = out.exact[first : first + min(len(data), out.measured)]
    return Vector(data, out.dtype, None, exact, out.block, out.measured)


def keep_exact(out: Vector, start: int, results: np.ndarray) -> None:
    """Keep those of consecutive results that are measured, as float32.

    Args:
        out: the vector of the results of a run.
        start: the place of the first result in it.
        results: the results before they are rounded, of any float type.
    """
    assert out.exact is not None
    stop = start + len(results)
    for number in range(start // out.block, -(-stop // out.block)):
        begin = number * out.block
        first, last = max(start, begin), min(stop, begin + out.measured)
        if first < last:
            place = number * out.measured - begin
            kept = results[first - start : last - start]
            with np.errstate(over="ignore"):  # infinite in float32, as in the output or not
                out.exact[place + first : place + last] = kept


def measure(
    reference: Vector,
    others: Sequence[Vector],
    out: Vector,
    written: np.ndarray | None = None,
) -> np.ndarray:
    """Return the measurements of the numbers of each block.

    Args:
        reference: the operand that changes are counted from: x_0.
        others: the other operands, x_i; their task vectors are ``x_i - x_0``.
        out: the rounded results y of a vector that `keeping_exact` made. Where its exact results
            x do not round to y (a method that wrote y itself), y counts as x.
        written: of an output that is quantised, the numbers that its codes stand for, float32,
            shape (2, elements that are measured): y, and x_0 as it is written with y's scales. What
            is told of all elements is then told of `out`, before it is quantised.

    Returns:
        float64, shape ``(blocks, 11 + 5 * len(others))``, in this order:

        `measured`: the elements that are measured. `intended`: the sum of ``(x - x_0)**2``.
        `change`: of ``(y - x_0)**2``, x_0 rounded as y is. `moved`: elements with ``x != x_0``.
        `lost`: those of them with ``y == x_0``. `conflicts`: elements for which task vectors have
        both signs. Of all elements: `unchanged`: 1 if every y equals x_0. `nans`, `infinities`: of
        y. `overflows`: the infinities of y where all operands are finite; for float8_e4m3fn, which
        has none, the largest numbers of y where no operand is as large. `reference_not_finite`:
        elements that are not finite in both y and x_0.

        For each of `others`: `size`: the sum of ``(x_i - x_0)**2``. `along`: of ``(x_i - x_0) *
        (y - x_0)``. `differs`: elements with ``x_i != x_0``. Of all elements: `equal`: 1 if every
        x_i equals x_0, bit by bit. `not_finite`: elements that are not finite in both y and x_i.
    """
    blocks = -(-len(out) // out.block)
    pair = None if written is None else written.reshape(-1)
    sums = np.empty((blocks, MEASURED_SUMS + MEASURED_MODEL_SUMS * len(others)))
    _kernels.measure(reference, others, out, sums, pair)
    return sums


def without_elements(blocks: int, others: int) -> np.ndarray:
    """Return the measurements of blocks in which no element of the tensor is.

    Args:
        blocks: the number of blocks.
        others: the number of models beside the first.
    """
    sums = np.zeros((blocks, MEASURED_SUMS + MEASURED_MODEL_SUMS * others))
    sums[:, UNCHANGED] = 1.0
    sums[:, MEASURED_SUMS + EQUAL :: MEASURED_MODEL_SUMS] = 1.0
    return sums
