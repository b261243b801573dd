"""Reading a range of a tensor whose elements are not contiguous in its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from resumerge.sources.dtypes import BITS
from resumerge.sources.types import StridedTensor

SPAN = 1 << 20
"""Bytes read at once; elements that are further apart are read piece by piece."""

ReadBytes = Callable[[int, memoryview], None]
"""Fills a buffer from an offset (bytes) in the tensor's file."""

Box = tuple[tuple[int, int], ...]
"""(first, one past the last) index in each dimension."""


def boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    """Divide elements ``start:stop`` in row-major order into consecutive boxes."""
    if start >= stop:
        return
    if not shape:
        yield ()
        return
    row = 1
    for count in shape[1:]:
        row *= count
    (first, skipped), (last, over) = divmod(start, row), divmod(stop, row)
    if skipped:
        end = min(stop - first * row, row)
        for box in boxes(shape[1:], skipped, end):
            yield ((first, first + 1), *box)
        first += 1
    if first < last:
        yield ((first, last), *((0, count) for count in shape[1:]))
    if over and first <= last:
        for box in boxes(shape[1:], 0, over):
            yield ((last, last + 1), *box)


def read_strided(
    read: ReadBytes, tensor: StridedTensor, start: int, stop: int, buffer: memoryview
) -> None:
    """Fill a buffer with elements ``start:stop`` of a tensor, in row-major order."""
    width = BITS[tensor.dtype] // 8
    out = np.frombuffer(buffer, f"u{width}", stop - start)
    done = 0
    for box in boxes(tensor.shape, start, stop):
        counts = tuple(last - first for first, last in box)
        begin = sum(first * stride for (first, _), stride in zip(box, tensor.strides))
        numel = int(np.prod(counts, dtype=np.int64))
        _gather(
            read,
            tensor.offset + begin * width,
            tensor.strides,
            out[done : done + numel].reshape(counts),
        )
        done += numel


def _gather(read: ReadBytes, offset: int, strides: tuple[int, ...], out: np.ndarray) -> None:
    """Fill `out` with elements that are `strides` apart, from an offset on."""
    width = out.itemsize
    span = sum((n - 1) * stride for n, stride in zip(out.shape, strides)) + 1
    if span * width <= SPAN:
        near = np.empty(span, out.dtype)
        read(offset, near.view(np.uint8).data)
        out[...] = np.lib.stride_tricks.as_strided(
            near, out.shape, tuple(stride * width for stride in strides)
        )
        return
    widest = max(range(out.ndim), key=lambda k: strides[k] if out.shape[k] > 1 else -1)
    others = strides[:widest] + strides[widest + 1 :]
    for k in range(out.shape[widest]):
        _gather(read, offset + k * strides[widest] * width, others, np.moveaxis(out, widest, 0)[k])
