"""Measurements of each block: what a merge did to its numbers.

Whether two vectors are equal, and how many elements are not finite, is measured on all elements.
Everything else is measured on the first 64th of a block, at least 2^12 elements: sums over all
elements would take a fifth of the time of a linear merge. Which elements are measured, and in which
order they are added, depends on the block alone. Element e of each chunk of 512 is added to lane
e mod 16 in float32; lanes are added up over the chunks in float64, and then to each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.native import Vector, _kernels
from resumerge.native._kernels import MEASURED_MODEL_SUMS, MEASURED_SUMS

UNCHANGED, EQUAL = 6, 3
"""The index of `unchanged` in the sums of a block, and of `equal` in the sums of a model."""

LEAST_MEASURED = 1 << 12
"""The least number of elements of a block that are measured."""


def measured_elements(block: int) -> int:
    """Return how many elements of a block of `block` elements are measured: the first ones."""
    return min(block, max(LEAST_MEASURED, -(-block // 64)))


def measured_bytes(length: int, block: int) -> int:
    """Return the bytes of the exact results that are kept of a block run.

    Args:
        length: the number of elements of the block run.
        block: the number of elements of a block.
    """
    whole, rest = divmod(length, block)
    measured = measured_elements(block)
    return 4 * (whole * measured + min(rest, measured))


def keeping_exact(out: Vector, block: int, buffer: np.ndarray) -> Vector:
    """Return a vector of results that also keeps the measured results before they are rounded.

    Args:
        out: the vector of the results of the block run.
        block: the elements of a block of it.
        buffer: room for `measured_bytes`, uint8.
    """
    exact = buffer.view(np.float32)
    exact.fill(np.nan)  # so that a result that is not written is noticed
    return Vector(out.data, out.dtype, None, exact, block, measured_elements(block))


def block_of_results(out: Vector, part: slice) -> Vector:
    """Return the results of one block of a block run. They keep the exact results that these keep.

    Args:
        out: the vector of the results of the block run.
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
        out: the vector of the results of a block run.
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
            measured = results[first - start : last - start]
            with np.errstate(over="ignore"):  # infinite in float32, as in the output or not
                out.exact[place + first : place + last] = measured


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
        written: for a quantised output, the numbers that its codes stand for, float32, shape (2,
            measured elements): y, and x_0 quantised with y's scales. Measurements of all elements
            are then those of `out`, before it is quantised.

    Returns:
        float64, shape ``(blocks, 11 + 5 * len(others))``, in this order:

        `measured`: number of measured elements. `intended`: the sum of ``(x - x_0)**2``. `change`:
        the sum of ``(y - x_0)**2``, x_0 rounded as y is. `moved`: number of elements with
        ``x != x_0``. `lost`: number of these elements with ``y == x_0``. `conflicts`: number of
        elements whose task vectors have both signs. Of all elements: `unchanged`: 1 if every y
        equals x_0. `nans`, `infinities`: numbers of these in y. `overflows`: number of infinities
        of y where all operands are finite; float8_e4m3fn has no infinity, so that its largest
        numbers count where no operand is as large. `reference_not_finite`: number of elements that
        are not finite in both y and x_0.

        For each of `others`: `size`: the sum of ``(x_i - x_0)**2``. `along`: the sum of
        ``(x_i - x_0) * (y - x_0)``. `differs`: number of elements with ``x_i != x_0``. Of all
        elements: `equal`: 1 if every x_i equals x_0, bit by bit. `not_finite`: number of elements
        that are not finite in both y and x_i.
    """
    blocks = -(-len(out) // out.block)
    pair = None if written is None else written.reshape(-1)
    sums = np.empty((blocks, MEASURED_SUMS + MEASURED_MODEL_SUMS * len(others)))
    _kernels.measure(reference, others, out, sums, pair)
    return sums


def without_elements(blocks: int, others: int) -> np.ndarray:
    """Return the measurements of blocks that have no element of the measured tensor.

    Args:
        blocks: the number of blocks.
        others: the number of models beside the first.
    """
    sums = np.zeros((blocks, MEASURED_SUMS + MEASURED_MODEL_SUMS * others))
    sums[:, UNCHANGED] = 1.0
    sums[:, MEASURED_SUMS + EQUAL :: MEASURED_MODEL_SUMS] = 1.0
    return sums
