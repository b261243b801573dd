"""Reads a range of a tensor whose elements are not contiguous in its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

SPAN = 1 << 20
"""Bytes that are read at once. Elements that span more bytes are read in several pieces."""

ReadBytes = Callable[[int, memoryview], None]
"""A function that fills a buffer from the tensor's file, starting at an offset in bytes."""

Box = tuple[tuple[int, int], ...]
"""The (first, one past the last) index in each dimension."""


def boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    """Divide elements ``start:stop`` in row-major order into consecutive boxes."""
    if start >= stop:
        return
    if not shape:
        yield ()
        return
    row_elements = 1
    for count in shape[1:]:
        row_elements *= count
    first_row, skipped_elements = divmod(start, row_elements)
    last_row, remaining_elements = divmod(stop, row_elements)
    if skipped_elements:
        end = min(stop - first_row * row_elements, row_elements)
        for box in boxes(shape[1:], skipped_elements, end):
            yield ((first_row, first_row + 1), *box)
        first_row += 1
    if first_row < last_row:
        yield ((first_row, last_row), *((0, count) for count in shape[1:]))
    if remaining_elements and first_row <= last_row:
        for box in boxes(shape[1:], 0, remaining_elements):
            yield ((last_row, last_row + 1), *box)


def read_strided(
    read: ReadBytes,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    start: int,
    stop: int,
    out: np.ndarray,
) -> None:
    """Read elements ``start:stop`` of a tensor, in row-major order.

    Args:
        read: a function that fills a buffer from the tensor's file.
        offset: offset of the tensor's first element in the file, in bytes.
        shape: the tensor's number of elements in each dimension.
        strides: distance between neighbours in each dimension, in elements.
        start: first element.
        stop: one past the last.
        out: the array to write to: an unsigned integer of the same width for each element.
    """
    position = 0
    for box in boxes(shape, start, stop):
        counts = tuple(last - first for first, last in box)
        begin = sum(first * stride for (first, _), stride in zip(box, strides))
        numel = int(np.prod(counts, dtype=np.int64))
        box_elements = out[position : position + numel].reshape(counts)
        _gather(read, offset + begin * out.itemsize, strides, box_elements)
        position += numel


def _gather(read: ReadBytes, offset: int, strides: tuple[int, ...], out: np.ndarray) -> None:
    """Fill `out` with the elements that are `strides` apart, starting at an offset in bytes."""
    width = out.itemsize
    span = sum((n - 1) * stride for n, stride in zip(out.shape, strides)) + 1
    if span * width <= SPAN:
        spanned_elements = np.empty(span, out.dtype)
        read(offset, spanned_elements.view(np.uint8).data)
        out[...] = np.lib.stride_tricks.as_strided(
            spanned_elements, out.shape, tuple(stride * width for stride in strides)
        )
        return
    widest = max(range(out.ndim), key=strides.__getitem__)
    other_strides = strides[:widest] + strides[widest + 1 :]
    step_bytes, slices = strides[widest] * width, np.moveaxis(out, widest, 0)
    for index in range(out.shape[widest]):
        place = slices[index, ...]  # an array, also of one element
        _gather(read, offset + index * step_bytes, other_strides, place)
