"""A weight that is changed by an adapter. It is computed range by range, when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.kernels.measurements import keep_exact, keeping_exact, measured_bytes
from resumerge.native import Vector
from resumerge.tensors.adapters.low_rank import Change, folded_sum
from resumerge.tensors.dtypes import BITS, FLOATS
from resumerge.tensors.evaluation import Evaluation, as_vector
from resumerge.tensors.stored import stored_in
from resumerge.tensors.stored.strided import boxes
from resumerge.tensors.tensor import Tensor

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 16
"""Elements computed at once: half a MiB in float64, which fits the processor's cache."""

ADAPTER_SCRATCH = 6 * 8 * CHUNK
"""Bytes for one chunk: the weight, the change, and intermediate results."""

MATMUL_BYTES = 12 << 20
"""Bytes that the library of matrix products keeps in a process that applies adapters (measured: up
to 8.3 MiB, with two threads on a busy machine)."""


@dataclass(frozen=True)
class Adapted(Tensor):
    """A weight that an adapter changes: ``weight + scale * B @ A``, rounded once to `dtype`.

    With DoRA, each output of the sum is rescaled.

    Args:
        a: shape (rank, in), with further dimensions for a convolution.
        b: shape (out, rank).
        transposed: whether the weight is stored as (in, out), like GPT-2's Conv1D and embeddings.
        magnitude: DoRA's magnitude vector, one number for each output; None without DoRA.
        alpha: one number by which `scale` is multiplied; None for 1.
        models: the model without the adapter, and the model with it, as text.
    """

    weight: Tensor
    a: Tensor
    b: Tensor
    scale: float
    transposed: bool
    magnitude: Tensor | None
    alpha: Tensor | None = None
    models: tuple[str, str] = ("the model", "the model with an adapter")

    @classmethod
    def of(
        cls,
        name: str,
        weight: Tensor,
        a: Tensor,
        b: Tensor,
        scale: float,
        transposed: bool,
        magnitude: Tensor | None = None,
        alpha: Tensor | None = None,
        **more: Any,
    ) -> Adapted:
        """Return a weight changed by an adapter, in the weight's dtype and shape."""
        factors = a, b, scale, transposed, magnitude, alpha
        return cls(name, weight.dtype, weight.shape, weight.exact, *factors, **more)

    @property
    def exact(self) -> Tensor:
        """The same sum in float32, or in the weight's dtype if that is wider."""
        return self if BITS[self.dtype] >= 32 else replace(self, dtype="F32")

    @property
    def rank(self) -> int:
        return self.a.shape[0]

    @property
    def matrix(self) -> tuple[int, int]:
        """The (rows, columns) of the weight as a matrix. A row of a convolution is one output."""
        return self.shape[0], self.numel // max(1, self.shape[0])

    @property
    def held_bytes(self) -> int:
        """The bytes of the adapter's matrices. The matrices are held, but never their product."""
        rows, columns = self.matrix
        row_width = BITS[self.a.dtype] // 8 if self.transposed else 4
        row_width = max(row_width, BITS[self.b.dtype] // 8)
        factors = 8 * max(rows, columns) if self.magnitude else 0
        return self.rank * (rows * row_width + columns * 8) + factors

    @property
    def held_in_turn(self) -> int:
        """The number of the adapter. An adapter's modules are computed one after the other."""
        return next(stored_in(self.a)).source

    @property
    def needs_torch(self) -> bool:
        """True, because torch computes the product of the matrices (on the processor only)."""
        return True

    @property
    def compared_models(self) -> tuple[str, ...]:
        return self.models

    def children(self) -> tuple[Tensor, ...]:
        return (self.weight, *self._of_adapter())

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        weight, a, b, *optional = children
        magnitude = optional.pop(0) if self.magnitude else None
        alpha = optional.pop(0) if self.alpha else None
        return replace(self, weight=weight, a=a, b=b, magnitude=magnitude, alpha=alpha)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        return self.weight.no_longer_read(start, stop)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        return self.weight.reads(start, stop)

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of the matrices and, for the norms of DoRA, of the weight."""
        for tensor in (*self._of_adapter(), *((self.weight,) if self.magnitude else ())):
            yield from tensor.reads(0, tensor.numel)

    def working_bytes(self, elements: int) -> float:
        weight_buffer = 0 if self._in_place else self._weight_bytes(elements)
        return ADAPTER_SCRATCH + weight_buffer + self.weight.working_bytes(elements)

    def measuring_bytes(self, elements: int, block_elements: int) -> int:
        """Return the bytes of buffers, in addition to `working_bytes`, if changes are measured."""
        weight_buffer = self._weight_bytes(elements) if self._in_place else 0
        return weight_buffer + measured_bytes(elements, block_elements)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        if start == stop:
            return
        import torch

        inner_evaluation = evaluation.inner()
        exact_results = self._keeping_exact(evaluation, out) if evaluation.measures else None
        weight_bytes = out
        if exact_results or not self._in_place:
            weight_bytes = evaluation.take("weight", self._weight_bytes(stop - start))
        self.weight.read(inner_evaluation, start, stop, weight_bytes)
        weight, results = _as_torch(weight_bytes, self.weight.dtype), _as_torch(out, self.dtype)
        change = evaluation.held.get(self, self.held_bytes, lambda: self._change(inner_evaluation))
        position = 0
        for rows, columns in _pieces(self.matrix, start, stop):
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            piece_elements = shape[0] * shape[1]
            weight_part = weight[position : position + piece_elements].view(shape)
            changed_part = change.added(weight_part.to(torch.float64, copy=True), rows, columns)
            results[position : position + piece_elements].view(shape).copy_(changed_part)
            if exact_results:
                keep_exact(exact_results, position, changed_part.view(-1).numpy())
            position += piece_elements
        if exact_results:
            # The changed model holds the rounded result, so changes lost by rounding do not count.
            reference = as_vector(weight_bytes, self.weight.dtype)
            model = as_vector(out, self.dtype)
            evaluation.measure(reference, [model], exact_results)

    def _keeping_exact(self, evaluation: Evaluation, out: np.ndarray) -> Vector:
        """Return a vector on `out` that also keeps the results to measure, before rounding."""
        results, block = as_vector(out, self.dtype), evaluation.block_elements
        return keeping_exact(
            results, block, evaluation.take("exact", measured_bytes(len(results), block))
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "adapted": self.weight.as_json(),
            "by": [matrix.as_json() for matrix in self._of_adapter()],
            "scale": self.scale,
            **({} if self._in_place else {"dtype": self.dtype}),
        }

    def _of_adapter(self) -> tuple[Tensor, ...]:
        return (self.a, self.b, *(t for t in (self.magnitude, self.alpha) if t))

    @property
    def _in_place(self) -> bool:
        """Whether the result has the weight's dtype, and can overwrite the weight in `out`."""
        return self.dtype == self.weight.dtype

    def _weight_bytes(self, elements: int) -> int:
        return elements * BITS[self.weight.dtype] // 8

    def _change(self, evaluation: Evaluation) -> Change:
        a = _whole(evaluation, self.a).view(self.rank, -1)
        b = _whole(evaluation, self.b).view(-1, self.rank)
        scale = self.scale
        if self.alpha is not None:
            scale *= float(_whole(evaluation, self.alpha)[0])
        change = Change(a, b, scale, self.transposed)
        if self.magnitude is not None:
            magnitude = _whole(evaluation, self.magnitude)
            change.factors = magnitude.double() / self._norms(evaluation, change)
        return change

    def _norms(self, evaluation: Evaluation, change: Change) -> torch.Tensor:
        """Return the norm of each output of the changed weight: shape (outputs,), float64."""
        import torch

        rows, columns = self.matrix
        squares = torch.zeros(columns if self.transposed else rows, dtype=torch.float64)
        band_rows = max(1, CHUNK // max(1, columns))
        for top in range(0, rows, band_rows):
            band = slice(top, min(top + band_rows, rows))
            weight = _whole(evaluation, self.weight, band.start * columns, band.stop * columns)
            changed_band = change.added(weight.double().view(-1, columns), band, slice(0, columns))
            if self.transposed:
                squares += folded_sum(changed_band.square_(), 0)
            else:
                squares[band] = folded_sum(changed_band.square_(), 1)
        return squares.sqrt_()


def _whole(
    evaluation: Evaluation, tensor: Tensor, start: int = 0, stop: int | None = None
) -> torch.Tensor:
    """Return elements ``start:stop`` of a tensor (all by default) in newly allocated memory."""
    stop = tensor.numel if stop is None else stop
    raw = np.empty((stop - start) * (BITS[tensor.dtype] // 8), np.uint8)
    tensor.read(evaluation, start, stop, raw)
    return _as_torch(raw, tensor.dtype)


def _as_torch(data: np.ndarray, dtype: str) -> torch.Tensor:
    """Return a flat tensor on the same memory as bytes. The dtype is a safetensors name."""
    import torch

    return torch.from_numpy(data).view(getattr(torch, FLOATS[dtype]))


def _pieces(matrix: tuple[int, int], start: int, stop: int) -> list[tuple[slice, slice]]:
    """Return pieces (slice of rows, slice of columns) that make up elements ``start:stop``.

    Each piece has about `CHUNK` elements.
    """
    pieces = []
    for (top, bottom), (left, right) in boxes(matrix, start, stop):
        rows_at_once = max(1, CHUNK // (right - left))
        for row in range(top, bottom, rows_at_once):
            pieces.append((slice(row, min(row + rows_at_once, bottom)), slice(left, right)))
    return pieces
