"""Computes the tensors that an adapter changes, range by range, as they are read.

Every element has the same bits whatever range, thread or processor it is computed by, because sums
are exact: the entries of both matrices are scaled, by a power of two for each row of one and each
column of the other, to integers of so few bits (22 or more) that a float64 holds every sum of their
products. The rest is elementwise in float64, with one rounding to the dtype of the weight.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from resumerge.sources.adapters.lora import AdaptedTensor, LowRank
from resumerge.sources.dtypes import FLOATS
from resumerge.sources.formats.strided import boxes
from resumerge.sources.types import Source, TensorInfo

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 16
"""Elements computed at once: half a MiB in float64, which fits the processor's cache."""

OVERLAY_SCRATCH = 6 * 8 * CHUNK
"""Bytes for one chunk: the weight, the change, and intermediate results."""

ReadInto = Callable[[int, TensorInfo, int, int, memoryview], int]


MATMUL_BYTES = 12 << 20
"""Bytes that the library for matrix products keeps; processes without adapters do not need them
(measured: up to 8.3 MiB, with two threads on a busy machine)."""


def overlay_bytes(sources: Sequence[Source]) -> int:
    """Most bytes held for the adapters of all sources together."""
    adapted = any(source.kind == "lora" for source in sources)
    return 2 * _largest(sources) + MATMUL_BYTES * adapted


def _largest(sources: Sequence[Source]) -> int:
    """Most bytes for one tensor of every source."""
    return sum(
        max((t.held_bytes for t in s.tensors.values() if isinstance(t, AdaptedTensor)), default=0)
        for s in sources
    )


class Overlays:
    """Reads adapted tensors. Threads may share it.

    It caches the matrices of the tensors that were used last: two tensors of every source.
    """

    def __init__(self, sources: Sequence[Source], read_into: ReadInto) -> None:
        self._read_into = read_into
        self._limit = 2 * _largest(sources)
        self._cache: OrderedDict[tuple[int, str], _Delta] = OrderedDict()
        self._lock = threading.Lock()

    def read_into(
        self, source: int, tensor: AdaptedTensor, start: int, stop: int, buffer: memoryview
    ) -> None:
        """Fill a buffer with elements ``start:stop`` of a tensor as the adapter changes it."""
        import torch

        if start == stop:
            return
        dtype = getattr(torch, FLOATS[tensor.dtype])
        out = torch.frombuffer(buffer, dtype=dtype)
        before = out
        if tensor.weight.dtype == tensor.dtype:
            self._read_into(source, tensor.weight, start, stop, buffer)
        else:
            before = self._read(source, tensor.weight, start, stop)
        if tensor.update is None:
            out.copy_(before)
            return
        delta = self._delta(source, tensor)
        done = 0
        for rows, columns in _pieces(tensor.matrix, start, stop):
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            size = shape[0] * shape[1]
            weight = before[done : done + size].double().view(shape)
            out[done : done + size].view(shape).copy_(delta.added(weight, rows, columns))
            done += size

    def _delta(self, source: int, tensor: AdaptedTensor) -> _Delta:
        key = (source, tensor.name)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = self._load(source, tensor)
                while len(self._cache) > 1 and self._bytes() > self._limit:
                    self._cache.popitem(last=False)
            self._cache.move_to_end(key)
            return self._cache[key]

    def _bytes(self) -> int:
        return sum(delta.nbytes for delta in self._cache.values())

    def _load(self, source: int, tensor: AdaptedTensor) -> _Delta:
        update = tensor.update
        assert update is not None
        a = self._read(source, update.a, 0, update.a.numel).view(update.rank, -1)
        b = self._read(source, update.b, 0, update.b.numel).view(-1, update.rank)
        delta = _Delta(a, b, update, tensor.held_bytes)
        if update.magnitude is not None:
            magnitude = self._read(source, update.magnitude, 0, update.magnitude.numel)
            delta.factors = magnitude.double() / self._norms(source, tensor, delta)
        return delta

    def _norms(self, source: int, tensor: AdaptedTensor, delta: _Delta) -> Tensor:
        """The norm of the changed weights of each output: shape (outputs,), float64."""
        import torch

        rows, columns = tensor.matrix
        per_column = delta.transposed
        squares = torch.zeros(columns if per_column else rows, dtype=torch.float64)
        step = max(1, CHUNK // max(1, columns))
        for first in range(0, rows, step):
            some = slice(first, min(first + step, rows))
            start, stop = some.start * columns, some.stop * columns
            weight = self._read(source, tensor.weight, start, stop).double()
            weight = delta.added(weight.view(-1, columns), some, slice(0, columns))
            if per_column:
                squares += _folded_sum(weight.square_(), 0)
            else:
                squares[some] = _folded_sum(weight.square_(), 1)
        return squares.sqrt_()

    def _read(self, source: int, tensor: TensorInfo, start: int, stop: int) -> Tensor:
        import torch

        dtype = getattr(torch, FLOATS[tensor.dtype])
        raw = torch.empty(stop - start, dtype=dtype)
        if stop > start:
            self._read_into(source, tensor, start, stop, raw.view(torch.uint8).numpy().data)
        return raw


class _Delta:
    """``scale * left @ right``, in the layout of the stored weight.

    Args:
        a: shape (rank, in).
        b: shape (out, rank).
    """

    def __init__(self, a: Tensor, b: Tensor, update: LowRank, nbytes: int) -> None:
        self.nbytes = nbytes
        self.transposed = update.transposed
        self.factors: Tensor | None = None
        left, right = (a.T, b.T) if update.transposed else (b, a)
        self._left = left
        self._scale = update.scale
        self._bits = (53 - (update.rank - 1).bit_length()) // 2
        self._right, self._right_unit = _as_integers(right, 0, self._bits)

    def added(self, weight: Tensor, rows: slice, columns: slice) -> Tensor:
        """Add the change to a part of the weight, in place.

        Args:
            weight: the given rows and columns, float64.
        """
        left, unit = _as_integers(self._left[rows], 1, self._bits)
        change = left @ self._right[:, columns]
        change *= self._right_unit[:, columns]
        change *= unit * self._scale
        weight += change
        if self.factors is not None:
            weight *= self.factors[columns] if self.transposed else self.factors[rows, None]
        return weight


def _as_integers(matrix: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor]:
    """A matrix as integers of at most `bits` bits, and the power of two by which each row
    (`dim` 1) or column (`dim` 0) of them is to be multiplied. Both are float64.
    """
    import torch

    wide = matrix.double()
    largest = wide.abs().amax(dim, keepdim=True).numpy()
    exponents = np.maximum(np.frexp(largest)[1], -900) - bits
    up, down = np.ldexp(1.0, -exponents), np.ldexp(1.0, exponents)
    return (wide * torch.from_numpy(up)).round_(), torch.from_numpy(down)


def _folded_sum(values: Tensor, dim: int) -> Tensor:
    """The sum along a dimension, by adding halves: in the same order on every processor."""
    while (count := values.shape[dim]) > 1:
        half = count // 2
        folded = values.narrow(dim, 0, half) + values.narrow(dim, half, half)
        if count % 2:
            folded.narrow(dim, 0, 1).add_(values.narrow(dim, count - 1, 1))
        values = folded
    return values.squeeze(dim)


def _pieces(matrix: tuple[int, int], start: int, stop: int) -> list[tuple[slice, slice]]:
    """Elements ``start:stop`` as slices of rows and columns, of about `CHUNK` elements each."""
    found = []
    for (top, bottom), (left, right) in boxes(matrix, start, stop):
        step = max(1, CHUNK // (right - left))
        for first in range(top, bottom, step):
            found.append((slice(first, min(first + step, bottom)), slice(left, right)))
    return found
