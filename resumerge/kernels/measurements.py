"""Measurements of each block: how a merge changed its numbers.

Equality of vectors, and the counts of elements that are not finite, are measured on all elements.
Everything else is measured on the first 64th of a block, but on at least 2^12 elements: sums over
all elements would take a fifth of the time of a linear merge. The choice of the measured elements,
and the order in which they are added, depend on the block only. Element e of each chunk of 512 is
added to lane e mod 16 in float32. The lanes are summed over the chunks in float64, and then added
to each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.native import Vector, _kernels
from resumerge.native._kernels import MEASURED_MODEL_SUMS, MEASURED_SUMS

UNCHANGED, EQUAL = 6, 3
"""The index of `unchanged` in the sums of a block, and of `equal` in the sums of a model."""

LEAST_MEASURED = 1 << 12
"""The smallest number of measured elements of a block; a smaller block is measured whole."""


def measured_elements(block: int) -> int:
    """Return the number of measured elements, the first ones, of a block of `block` elements."""
    return min(block, max(LEAST_MEASURED, -(-block // 64)))


def measured_bytes(length: int, block: int) -> int:
    """Return the size of the exact results that are kept for a block run, in bytes.

    Args:
        length: the number of elements of the block run.
        block: the number of elements of a block.
    """
    whole_blocks, last_elements = divmod(length, block)
    measured_per_block = measured_elements(block)
    return 4 * (whole_blocks * measured_per_block + min(last_elements, measured_per_block))


def keeping_exact(out: Vector, block: int, buffer: np.ndarray) -> Vector:
    """Return a vector for results that also keeps the measured results before they are rounded.

    Args:
        out: the vector of the results of the block run.
        block: the number of elements of a block.
        buffer: memory for the exact results: uint8, `measured_bytes` long.
    """
    exact = buffer.view(np.float32)
    exact.fill(np.nan)  # a result that is not written stays NaN, and is noticed
    return Vector(out.data, out.dtype, None, exact, block, measured_elements(block))


def block_of_results(out: Vector, part: slice) -> Vector:
    """Return the results of one block of a block run, with the block's exact results if kept.

    Args:
        out: the vector of the results of the block run.
        part: the place of the block in it, as a slice of elements.
    """
    results = out.data[part]
    if out.exact is None:
        return Vector(results, out.dtype)
    first_exact = part.start // out.block * out.measured
    exact = out.exact[first_exact : first_exact + min(len(results), out.measured)]
    return Vector(results, out.dtype, None, exact, out.block, out.measured)


def keep_exact(out: Vector, start: int, results: np.ndarray) -> None:
    """Copy the measured elements of some consecutive results into the exact results of `out`.

    Args:
        out: the vector of the results of a block run, made by `keeping_exact`.
        start: the index in it of the first result.
        results: the results before they are rounded, in any float dtype.
    """
    assert out.exact is not None
    stop = start + len(results)
    for number in range(start // out.block, -(-stop // out.block)):
        block_start = number * out.block
        copy_start, copy_stop = max(start, block_start), min(stop, block_start + out.measured)
        if copy_start < copy_stop:
            shift = number * out.measured - block_start
            measured_results = results[copy_start - start : copy_stop - start]
            with np.errstate(over="ignore"):  # may become infinite in float32
                out.exact[shift + copy_start : shift + copy_stop] = measured_results


def measure(
    reference: Vector,
    others: Sequence[Vector],
    out: Vector,
    written: np.ndarray | None = None,
) -> np.ndarray:
    """Return the measurements of each block of a block run.

    Args:
        reference: x_0, the operand from which changes are counted.
        others: x_i, the other operands; their task vectors are ``x_i - x_0``.
        out: a vector that `keeping_exact` made: the rounded results y, and the exact results x.
            Where x does not round to y, because a method wrote y itself, y is used in place of x.
        written: for a quantised output, the numbers that its codes represent, float32, shape (2,
            measured elements): y, and x_0 quantised with the scales of y. The measurements of all
            elements then use `out`, which is not yet quantised.

    Returns:
        float64, shape ``(blocks, 11 + 5 * len(others))``, in this order:

        `measured`: the number of measured elements. `intended`: the sum of ``(x - x_0)**2``.
        `change`: the sum of ``(y - x_0)**2``, with x_0 rounded as y is. `moved`: the number of
        elements with ``x != x_0``. `lost`: the number of these elements with ``y == x_0``.
        `conflicts`: the number of elements whose task vectors have both signs. Over all elements:
        `unchanged`: 1 if every y equals x_0. `nans`, `infinities`: the numbers of NaN and of
        infinities in y. `overflows`: the number of infinities in y where all operands are finite.
        float8_e4m3fn has no infinity: its largest magnitude is counted where every operand is
        smaller. `reference_not_finite`: the number of elements that are finite neither in y nor
        in x_0.

        For each of `others`: `size`: the sum of ``(x_i - x_0)**2``. `along`: the sum of
        ``(x_i - x_0) * (y - x_0)``. `differs`: the number of elements with ``x_i != x_0``. Over all
        elements: `equal`: 1 if every x_i equals x_0, bit by bit. `not_finite`: the number of
        elements that are finite neither in y nor in x_i.
    """
    block_count = -(-len(out) // out.block)
    flat_written = None if written is None else written.reshape(-1)
    sums = np.empty((block_count, MEASURED_SUMS + MEASURED_MODEL_SUMS * len(others)))
    _kernels.measure(reference, others, out, sums, flat_written)
    return sums


def without_elements(blocks: int, others: int) -> np.ndarray:
    """Return the measurements of blocks that contain no element of the measured tensor.

    Args:
        blocks: the number of blocks, and of rows of the result.
        others: the number of other operands, as in `measure`.
    """
    sums = np.zeros((blocks, MEASURED_SUMS + MEASURED_MODEL_SUMS * others))
    sums[:, UNCHANGED] = 1.0
    sums[:, MEASURED_SUMS + EQUAL :: MEASURED_MODEL_SUMS] = 1.0
    return sums
