"""A weight that is written quantised: as codes, with a scale for each block of elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.kernels import round_to
from resumerge.kernels.measurements import measured_elements, without_elements
from resumerge.kernels.quantised import apply_grid, block_maxima, quantise
from resumerge.native import Vector
from resumerge.tensors.adapters.adapted import Adapted
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation, bytes_of, code_of
from resumerge.tensors.merged import Merged
from resumerge.tensors.quantised.codes import decode_codes
from resumerge.tensors.quantised.form import Form
from resumerge.tensors.target import block_elements
from resumerge.tensors.tensor import Tensor

MILLISECONDS = 1.2
"""Time of one core for 2^20 elements, on the machine where the costs of methods were measured."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Quantised(Tensor):
    """The bytes of a quantised weight: its codes, row by row, its scales, and its description.

    A number is divided by its block's scale and rounded to the nearest code. The scales are
    computed together with the codes, and are held until all codes are written. Then the scales are
    written. Scales that are not held, for example after an interruption, are computed again from
    the weight.

    Args:
        weight: a matrix of a float type, or a stack of matrices whose rows are whole blocks.
        form: the way in which the weight's numbers are written.
        block: the (rows, columns) of a block with one scale.
        rows_at_once: the number of rows that are computed together. They are whole blocks.
        described: bytes that describe the weight. They are written after the scales.
    """

    weight: Tensor
    form: Form
    block: tuple[int, int]
    rows_at_once: int
    described: bytes = b""

    @classmethod
    def of(
        cls, name: str, weight: Tensor, form: Form, block: tuple[int, int], described: bytes = b""
    ) -> Quantised:
        """Return the bytes of a quantised weight.

        The rows that are computed together have about as many elements as a block of a merge. If
        the weight is merged in blocks, these rows become its blocks. If the merge needs the whole
        tensor, all rows are computed together.
        """
        columns = weight.shape[-1]
        rows = weight.numel // columns
        rows_at_once = block_elements(block[0] * columns) // columns
        if isinstance(weight, Merged):
            if weight.block_elements >= weight.numel:
                rows_at_once = -(-rows // block[0]) * block[0]
            weight = replace(weight, dtype="F32", block_elements=rows_at_once * columns)
        scale_count = -(-rows // block[0]) * -(-columns // block[1])
        total_bytes = rows * columns // form.code.per_byte + scale_count * (BITS[form.scales] // 8)
        total_bytes += 4 * bool(form.whole) + len(described)
        return cls(
            name=name,
            dtype="U8",
            shape=(total_bytes,),
            weight=weight,
            form=form,
            block=block,
            rows_at_once=rows_at_once,
            described=described,
        )

    @property
    def columns(self) -> int:
        """The elements of a row of the weight."""
        return self.weight.shape[-1]

    @property
    def rows(self) -> int:
        """The rows of the weight. A stack has the rows of all its matrices."""
        return self.weight.numel // self.columns

    @property
    def grid(self) -> tuple[int, int]:
        """The (rows, columns) of the grid of scales."""
        return -(-self.rows // self.block[0]), -(-self.columns // self.block[1])

    @property
    def code_bytes(self) -> int:
        """The bytes of the codes."""
        return self.weight.numel // self.form.code.per_byte

    @property
    def scale_bytes(self) -> int:
        """The bytes of the scales."""
        return self.grid[0] * self._scale_row

    @property
    def bytes_at_once(self) -> int:
        """The bytes of the codes of `rows_at_once` rows."""
        return self.rows_at_once * self._code_row

    @property
    def own_milliseconds(self) -> float:
        return self.weight.numel * MILLISECONDS

    @property
    def held_bytes(self) -> int:
        """The bytes of the scales, of one flag for each row of the grid, and of the factor."""
        return self.scale_bytes + self.grid[0] + 4

    @property
    def held_in_turn(self) -> str:
        return "scales"

    @property
    def compared_models(self) -> tuple[str, ...]:
        return self.weight.compared_models

    @property
    def scheme_measured(self) -> tuple[str, int]:
        return self.form.name, self.weight.numel

    def children(self) -> tuple[Tensor, ...]:
        return (self.weight,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [weight] = children
        return replace(self, weight=weight)

    def blocks_at_once(self, block_elements: int, nbytes: int) -> int:
        return max(1, nbytes // (4 * block_elements * self.form.code.per_byte))

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if stop == self.numel:
            yield from self.weight.no_longer_read(0, self.weight.numel)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges from which codes are computed. Scales are held and need no reads."""
        if start < (codes_end := min(stop, self.code_bytes)):
            columns, rows_at_once = self.columns, self.rows_at_once
            top_row = start // self._code_row // rows_at_once * rows_at_once
            bottom_row = -(-codes_end // self.bytes_at_once) * rows_at_once
            yield from self.weight.reads(
                top_row * columns, min(bottom_row * columns, self.weight.numel)
            )

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of the whole weight, if it has a factor."""
        if self.form.whole:
            yield from self.weight.reads(0, self.weight.numel)

    def working_bytes(self, elements: int) -> float:
        piece_elements = min(self.rows_at_once, self.rows) * self.columns
        unrounded_width = 0 if self.weight.dtype == "F32" else BITS[self.weight.dtype] // 8
        maxima_bytes = 3 * 4 * piece_elements / self.block[1]
        code_bytes = piece_elements / self.form.code.per_byte
        weight_bytes = self.weight.working_bytes(piece_elements) + self._measuring_bytes(
            piece_elements
        )
        return piece_elements * (4 + unrounded_width) + maxima_bytes + code_bytes + weight_bytes

    def _measuring_bytes(self, piece: int) -> float:
        """Return the bytes of buffers for measuring the change that remains after quantisation."""
        of_weight = 0
        if isinstance(self.weight, Adapted):
            of_weight = self.weight.measuring_bytes(piece, piece)
        return of_weight + 9 * (measured_elements(piece) + self.columns)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        scales = evaluation.held.get(self, self.held_bytes, lambda: self._no_scales(evaluation))
        codes_end = min(stop, self.code_bytes)
        size, rows = self._code_row, self.rows
        for top in range(start // self.bytes_at_once * self.rows_at_once, rows, self.rows_at_once):
            first, bottom = top * size, min(top + self.rows_at_once, rows)
            if max(first, start) >= codes_end:
                break
            band_end = bottom * size
            if start <= first and band_end <= stop:
                self._compute(
                    evaluation, top, bottom, out[first - start : band_end - start], scales
                )
                continue
            band_codes = evaluation.take("quantised", band_end - first)
            self._compute(evaluation.comparing(None), top, bottom, band_codes, scales)
            begin, end = max(first, start), min(band_end, stop)
            out[begin - start : end - start] = band_codes[begin - first : end - first]
        self._read_scales_and_description(
            evaluation, max(start, codes_end), stop, out[max(codes_end - start, 0) :], scales
        )
        if evaluation.measurements is not None and self.compared_models:
            size = self.bytes_at_once
            first = -(-max(start, self.code_bytes) // size)
            block_count = max(0, -(-stop // size) - first)
            other_count = len(self.compared_models) - 1
            evaluation.measurements.append(without_elements(block_count, other_count))

    def as_json(self) -> dict[str, Any]:
        return {
            "quantised": self.form.name,
            "of": self.weight.as_json(),
            "block": list(self.block),
            "scales": self.form.scales,
        }

    @property
    def _code_row(self) -> int:
        return self.columns // self.form.code.per_byte

    @property
    def _scale_row(self) -> int:
        return self.grid[1] * (BITS[self.form.scales] // 8)

    def _read_scales_and_description(
        self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray, scales: _Scales
    ) -> None:
        """Write bytes ``start:stop`` of this tensor, all of which come after the codes."""
        if start >= stop:
            return
        block_rows, scale_row_bytes = self.block[0], self._scale_row
        first_byte, end_byte = start - self.code_bytes, stop - self.code_bytes
        bands_at_once = self.rows_at_once // block_rows
        for band in range(
            first_byte // scale_row_bytes // bands_at_once * bands_at_once,
            self.grid[0],
            bands_at_once,
        ):
            if band * scale_row_bytes >= end_byte:
                break
            if not scales.known[band : band + bands_at_once].all():
                top = band * block_rows
                bottom = min(top + self.rows_at_once, self.rows)
                codes = evaluation.take("quantised", (bottom - top) * self._code_row)
                self._compute(evaluation.comparing(None), top, bottom, codes, scales)
        scale_bytes = scales.stored.reshape(-1)[first_byte:end_byte]
        out[: len(scale_bytes)] = scale_bytes
        factor = scales.factor.tobytes() if self.form.whole else b""
        factor_and_description = np.frombuffer(factor + self.described, np.uint8)
        out[len(scale_bytes) :] = factor_and_description[max(first_byte - self.scale_bytes, 0) :][
            : len(out) - len(scale_bytes)
        ]

    def _compute(
        self, evaluation: Evaluation, top: int, bottom: int, out: np.ndarray, held: _Scales
    ) -> None:
        """Write the codes of rows ``top:bottom``, which are whole blocks, and hold their scales."""
        columns, (block_rows, block_columns) = self.columns, self.block
        measured_runs = list[tuple[Vector, Sequence[Vector], Vector]]()
        weight_evaluation = evaluation
        if evaluation.measures:
            weight_evaluation = evaluation.comparing(
                lambda *run: measured_runs.append(run), self.rows_at_once * columns
            )
        weight_floats = self._values(weight_evaluation, top * columns, bottom * columns)
        maxima = block_maxima(weight_floats, columns, block_columns)
        if block_rows > 1:
            maxima = np.maximum.reduceat(maxima, np.arange(0, bottom - top, block_rows))
        stored_scales, scales = self.form.scaled(maxima, held.factor)
        grid_rows = slice(top // block_rows, -(-bottom // block_rows))
        held.stored[grid_rows] = stored_scales.reshape(-1, self._scale_row)
        held.known[grid_rows] = True
        grid = np.repeat(scales, block_rows, axis=0)[: bottom - top] if block_rows > 1 else scales
        grid = np.ascontiguousarray(grid)
        quantise(weight_floats, columns, grid, block_columns, self.form.code, out)
        for reference, other_operands, results in measured_runs:
            decoded_numbers = self._as_written(
                evaluation, weight_floats, reference, len(results.exact), grid
            )
            evaluation.measure(reference, other_operands, results, decoded_numbers)

    def _as_written(
        self,
        evaluation: Evaluation,
        values: np.ndarray,
        reference: Vector,
        count: int,
        grid: np.ndarray,
    ) -> np.ndarray:
        """Return the first numbers of a piece and of the reference, quantised and decoded again.

        Both are quantised with the scales of the piece. Equal codes then mean that no change
        remains.

        Returns:
            The numbers, float32, shape (2, count).
        """
        columns, block_columns, code = self.columns, self.block[1], self.form.code
        if count <= columns:
            columns = min(columns, count + count % 2)
            grid = np.ascontiguousarray(grid[:1, : -(-columns // block_columns)])
        element_count = -(-count // columns) * columns
        decoded_numbers = (
            evaluation.take("as written", 2 * 4 * element_count)
            .view(np.float32)
            .reshape(2, element_count)
        )
        decoded_numbers[0] = values[:element_count]
        round_to(
            Vector(reference.data[:element_count], reference.dtype), Vector(decoded_numbers[1])
        )
        codes = evaluation.take("codes as written", element_count // code.per_byte)
        grid = grid[: element_count // columns]
        for numbers in decoded_numbers:
            quantise(numbers, columns, grid, block_columns, code, codes)
            decode_codes(codes, code, numbers)
            apply_grid(numbers, columns, grid, block_columns, subtracts=False)
        return np.ascontiguousarray(decoded_numbers[:, :count])

    def _no_scales(self, evaluation: Evaluation) -> _Scales:
        """Return a `_Scales` with the weight's factor, in which no scale has been computed yet."""
        largest_magnitude, piece_elements = 0.0, self.rows_at_once * self.columns
        for start in range(0, self.weight.numel if self.form.whole else 0, piece_elements):
            stop = min(start + piece_elements, self.weight.numel)
            weight_floats = self._values(evaluation.comparing(None), start, stop)
            maxima = block_maxima(weight_floats, self.columns, self.block[1])
            largest_magnitude = max(
                largest_magnitude, float(np.max(maxima, where=np.isfinite(maxima), initial=0))
            )
        return _Scales.of(self, self.form.factor(largest_magnitude))

    def _values(self, evaluation: Evaluation, start: int, stop: int) -> np.ndarray:
        """Return elements ``start:stop`` of the weight as float32, in a buffer.

        The weight is evaluated at the depth of this tensor, so that scans of a merge use the same
        buffers.
        """
        buffer = evaluation.take("to quantise", 4 * (stop - start))
        if self.weight.dtype == "F32":
            self.weight.read(evaluation, start, stop, buffer)
        else:
            unrounded = evaluation.vector(
                "before quantising", stop - start, code_of(self.weight.dtype)
            )
            self.weight.read(evaluation, start, stop, bytes_of(unrounded))
            round_to(unrounded, Vector(buffer.view(np.float32)))
        return buffer.view(np.float32)


@dataclass(frozen=True)
class _Scales:
    """The scales of a weight that have been computed so far.

    Args:
        stored: the bytes of the scales, with one row for each row of the grid.
        known: for each row of the grid, whether its scales have been computed.
        factor: the number that multiplies scales in float8 before they are stored; 1 without one.
    """

    stored: np.ndarray
    known: np.ndarray
    factor: np.float32

    @classmethod
    def of(cls, tensor: Quantised, factor: np.float32) -> _Scales:
        """Return the `_Scales` of a weight before any scale is computed."""
        grid_rows = tensor.grid[0]
        scale_bytes = np.zeros((grid_rows, tensor.scale_bytes // max(1, grid_rows)), np.uint8)
        return cls(scale_bytes, np.zeros(grid_rows, bool), factor)
