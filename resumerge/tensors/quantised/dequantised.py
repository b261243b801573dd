"""Weights decoded from a quantised tensor and a tensor of scales.

There is one scale for the whole weight, for each row, or for each block of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.errors import refuse
from resumerge.kernels import round_to
from resumerge.kernels.quantised import apply_grid
from resumerge.native import Vector
from resumerge.tensors.dtypes import BITS, FLOATS
from resumerge.tensors.evaluation import Evaluation, as_vector
from resumerge.tensors.quantised.codes import Codebook
from resumerge.tensors.tensor import Tensor

PIECE_ELEMENTS = 1 << 17
"""Elements computed at once (at least one row): half a MiB, which fits the processor's cache."""

MILLISECONDS = 0.8
"""Time of one core for 2^20 elements, on the machine where the costs of methods were measured."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Dequantised(Tensor):
    """Codes that are decoded and scaled, in float32: ``scale * (number - zero) * factor + added``.

    The elements are the rows of a matrix, or of several matrices of the same height. Each matrix is
    divided into a grid of blocks, and a block has one scale and one zero point. If a range begins
    inside a row, the whole row is computed.

    Args:
        scheme: the name of the quantisation.
        codes: the tensor that is decoded: bytes if there is a codebook, otherwise float8 or whole
            numbers of 8 bits.
        codebook: the number of each code; None if codes are numbers of their own dtype.
        rows: the number of rows of each matrix.
        columns: the elements of a row.
        block: (rows, columns) of a block of the grid.
        scales: a scale for each block, row by row; None for 1.
        divides: whether a number is divided by its scale, instead of multiplied.
        zeros: a zero point for each block; None for 0.
        block_of_column: for each column, the number of its block; None if columns are in order.
        factor: the number by which all elements are multiplied.
        added: the number that is added to all elements.
    """

    scheme: str
    codes: Tensor
    codebook: Codebook | None
    rows: int
    columns: int
    block: tuple[int, int]
    scales: Tensor | None
    divides: bool = False
    zeros: Tensor | None = None
    block_of_column: Tensor | None = None
    factor: float = 1.0
    added: float = 0.0

    @classmethod
    def elementwise(
        cls,
        codes: Tensor,
        shape: tuple[int, ...],
        scheme: str,
        codebook: Codebook | None = None,
        scale: Tensor | None = None,
        *,
        divides: bool = False,
    ) -> Dequantised:
        """Return decoded numbers that all have the same scale, or that have no scale."""
        columns = max(1, shape[-1]) if shape else 1
        rows = max(1, math.prod(shape) // columns)
        return cls(
            name=codes.name,
            dtype="F32",
            shape=shape,
            scheme=scheme,
            codes=codes,
            codebook=codebook,
            rows=rows,
            columns=columns,
            block=(rows, columns),
            scales=scale,
            divides=divides,
        )

    @classmethod
    def shifted(cls, tensor: Tensor, added: float) -> Dequantised:
        """Return a tensor of floats with a number added to each element, in float32."""
        return replace(
            cls.elementwise(tensor, (tensor.numel,), "shifted"), shape=tensor.shape, added=added
        )

    @property
    def grid(self) -> tuple[int, int]:
        """The (rows, columns) of the grid of one matrix."""
        return -(-self.rows // self.block[0]), -(-self.columns // self.block[1])

    @property
    def own_milliseconds(self) -> float:
        return self.numel * MILLISECONDS

    @property
    def held_bytes(self) -> int:
        """The bytes of the index (int64) that is made from `block_of_column`."""
        return 8 * self.columns if self.block_of_column is not None else 0

    @property
    def held_in_turn(self) -> str | None:
        return f"columns of {self.columns}" if self.block_of_column is not None else None

    def children(self) -> tuple[Tensor, ...]:
        optional = (self.scales, self.zeros, self.block_of_column)
        return (self.codes, *(tensor for tensor in optional if tensor is not None))

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        codes, *optional = children
        scales = optional.pop(0) if self.scales is not None else None
        zeros = optional.pop(0) if self.zeros is not None else None
        columns = optional.pop(0) if self.block_of_column is not None else None
        return replace(self, codes=codes, scales=scales, zeros=zeros, block_of_column=columns)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        rows_end = self.numel if stop == self.numel else stop // self.columns * self.columns
        yield from self.codes.no_longer_read(
            *self._coded(start // self.columns * self.columns, rows_end)
        )
        if stop == self.numel:
            for tensor in self.children()[1:]:
                yield from tensor.no_longer_read(0, tensor.numel)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if start == stop:
            return
        top, bottom = start // self.columns, -(-stop // self.columns)
        begin, end = top * self.columns, min(bottom * self.columns, self.numel)
        yield from self.codes.reads(*self._coded(begin, end))
        first_block, end_block = self._blocks_of(top), self._blocks_of(bottom - 1) + self.grid[1]
        for tensor in (self.scales, self.zeros):
            if tensor is not None:
                yield from tensor.reads(first_block, end_block)

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of `block_of_column`."""
        if self.block_of_column is not None:
            yield from self.block_of_column.reads(0, self.block_of_column.numel)

    def working_bytes(self, elements: int) -> float:
        piece_elements = max(PIECE_ELEMENTS, self.columns) + self.columns
        own_buffers = piece_elements * (
            BITS[self.codes.dtype] // 8 + 4 + 2 * 4 * bool(self.scales or self.zeros)
        )
        return own_buffers + max(child.working_bytes(piece_elements) for child in self.children())

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        out_floats = out.view(np.float32)
        inner_evaluation = evaluation.inner()
        columns = self.columns
        rows_at_once, end_row = max(1, PIECE_ELEMENTS // columns), -(-stop // columns)
        for top in range(start // columns, end_row, rows_at_once) if start < stop else ():
            bottom = min(top + rows_at_once, end_row)
            begin, end = top * columns, min(bottom * columns, self.numel)
            part_start, part_stop = max(begin, start), min(end, stop)
            target = out_floats[part_start - start : part_stop - start]
            if end - begin == (bottom - top) * columns == len(target):
                self._compute(evaluation, inner_evaluation, top, bottom, target)
            else:
                whole_rows = evaluation.take("rows", (bottom - top) * columns * 4).view(np.float32)
                self._compute(evaluation, inner_evaluation, top, bottom, whole_rows)
                target[:] = whole_rows[part_start - begin : part_stop - begin]

    def as_json(self) -> dict[str, Any]:
        optional = {
            "scales": self.scales,
            "zeros": self.zeros,
            "block_of_column": self.block_of_column,
        }
        return {
            "dequantised": self.scheme,
            "of": self.codes.as_json(),
            "codebook": self.codebook.name if self.codebook else None,
            "block": list(self.block),
            **({"divides": True} if self.divides else {}),
            **({"factor": self.factor} if self.factor != 1.0 else {}),
            **({"added": self.added} if self.added else {}),
            **{name: tensor.as_json() for name, tensor in optional.items() if tensor is not None},
        }

    def _coded(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of `codes` for a range of elements that begins at a row."""
        per_code = self.codebook.per_byte if self.codebook else 1
        return start // per_code, -(-stop // per_code)

    def _blocks_of(self, row: int) -> int:
        """Return the number of the first block of a row."""
        matrix, row = divmod(row, self.rows)
        grid_rows, grid_columns = self.grid
        return (matrix * grid_rows + row // self.block[0]) * grid_columns

    def _compute(
        self, evaluation: Evaluation, inner: Evaluation, top: int, bottom: int, out: np.ndarray
    ) -> None:
        """Write the elements of rows ``top:bottom``. The tensor may end inside the last row."""
        self._decode(evaluation, inner, top, bottom, out)
        matrix = out.reshape(bottom - top, self.columns)
        if self.zeros is not None:
            self._apply(np.subtract, self.zeros, evaluation, inner, top, matrix)
        if self.scales is not None:
            operation = np.divide if self.divides else np.multiply
            self._apply(operation, self.scales, evaluation, inner, top, matrix)
        if self.factor != 1.0:
            matrix *= np.float32(self.factor)
        if self.added:
            matrix += np.float32(self.added)

    def _decode(
        self, evaluation: Evaluation, inner: Evaluation, top: int, bottom: int, out: np.ndarray
    ) -> None:
        begin, end = top * self.columns, min(bottom * self.columns, self.numel)
        first_code, end_code = self._coded(begin, end)
        codes = evaluation.take("codes", (end_code - first_code) * (BITS[self.codes.dtype] // 8))
        self.codes.read(inner, first_code, end_code, codes)
        out[end - begin :] = 0.0
        if self.codebook is not None:
            self.codebook.decode(codes, out[: end - begin])
        elif self.codes.dtype in FLOATS:
            round_to(as_vector(codes, self.codes.dtype), Vector(out[: end - begin]))
        else:
            out[: end - begin] = codes.view(np.int8)

    def _apply(
        self,
        operation: np.ufunc,
        tensor: Tensor,
        evaluation: Evaluation,
        inner: Evaluation,
        top: int,
        matrix: np.ndarray,
    ) -> None:
        """Apply an operation to rows, in place, with the scale or zero point of each block.

        Args:
            operation: ``np.subtract`` for zero points; ``np.multiply`` or ``np.divide`` for scales.
            tensor: the zero points or scales.
            evaluation: the files, buffers and statistics to compute with.
            inner: the evaluation of `tensor`.
            top: the number of the first row.
            matrix: the rows, float32.
        """
        row_count, (grid_rows, grid_columns) = len(matrix), self.grid
        first_block = self._blocks_of(top)
        end_block = self._blocks_of(top + row_count - 1) + grid_columns
        grid = tensor.floats(inner, first_block, end_block).reshape(-1, grid_columns)
        if len(grid) != row_count:
            rows = np.arange(top, top + row_count)
            rows = rows // self.rows * grid_rows + rows % self.rows // self.block[0]
            grid = grid[rows - first_block // grid_columns]
        columns = self._columns(evaluation)
        if columns is not None:
            with np.errstate(all="ignore"):  # a model's scales may be 0, infinite or NaN
                operation(matrix, grid[:, columns], out=matrix)
        elif operation is np.divide:
            scales_of_elements = np.repeat(grid, self.block[1], axis=1)[:, : self.columns]
            with np.errstate(all="ignore"):
                operation(matrix, scales_of_elements, out=matrix)
        else:
            grid = np.ascontiguousarray(grid)
            subtracts = operation is np.subtract
            apply_grid(matrix, self.columns, grid, self.block[1], subtracts=subtracts)

    def _columns(self, evaluation: Evaluation) -> np.ndarray | None:
        """Return the number of each column's block, as an index; None if columns are in order.

        Raises:
            InputError: a column has a number that is not the number of a block.
        """
        tensor = self.block_of_column
        if tensor is None:
            return None

        def read() -> np.ndarray | None:
            raw = np.empty(tensor.nbytes, np.uint8)
            tensor.read(evaluation.inner(), 0, tensor.numel, raw)
            blocks = raw.view(np.int32).astype(np.int64)
            if not 0 <= blocks.min() <= blocks.max() < self.grid[1]:
                raise refuse(
                    "The groups of a quantised weight are damaged",
                    where=tensor.name,
                    expected=f"numbers from 0 to {self.grid[1] - 1}",
                    found=f"{blocks.min()} to {blocks.max()}",
                    fix="download the model again",
                )
            are_in_order = np.array_equal(blocks, np.arange(self.columns) // self.block[1])
            return None if are_in_order else blocks

        return evaluation.held.get((self, "columns"), self.held_bytes, read)
