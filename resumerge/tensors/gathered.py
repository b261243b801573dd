"""A tensor whose rows come from several tensors: an embedding with its tokens in a new order.

A range is gathered by one read for each run of consecutive rows. Neither a permutation matrix nor a
whole tensor is ever in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.kernels import round_to
from resumerge.native import Vector
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation, as_vector, code_of
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO, Rows, vocabulary_rows
from resumerge.tensors.tensor import Tensor

MEAN_ELEMENTS = 1 << 18
"""Elements that are added to the mean of all rows at once. The sum's order depends on it."""


@dataclass(frozen=True, eq=False)
class Gathered(Tensor):
    """Rows of tables, averages of rows, and zeros, as one tensor in float32.

    Args:
        tables: the tensors that `rows` refers to by number. All rows have the same length.
        rows: the origin of each row.
    """

    tables: tuple[Tensor, ...]
    rows: Rows

    @classmethod
    def of(
        cls, name: str, shape: tuple[int, ...], tables: tuple[Tensor, ...], rows: Rows
    ) -> Gathered:
        """Return rows of tables as a tensor of a shape."""
        return cls(name, "F32", shape, tables, rows)

    @property
    def width(self) -> int:
        """The number of elements of a row."""
        return self.tables[0].numel // max(1, vocabulary_rows(self.tables[0].shape))

    @property
    def held_bytes(self) -> int:
        """The bytes of the mean of all rows, which is held while blocks are read."""
        return 4 * self.width if self.rows.has_mean else 0

    def children(self) -> tuple[Tensor, ...]:
        return self.tables

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        return replace(self, tables=children)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield whole tables after the last element, because any element may read any row."""
        if stop == self.numel:
            for table in self.tables:
                yield from table.no_longer_read(0, table.numel)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        width = self.width
        if start == stop:
            return
        runs = self.rows.runs(start // width, -(-stop // width))
        run_facts = (runs.begins.tolist(), runs.ends.tolist(), runs.shifts.tolist())
        for begin, end, shift, origin in zip(*run_facts, runs.origins.tolist()):
            element_start, element_end = max(begin * width, start), min(end * width, stop)
            if origin >= 0:
                yield from self.tables[origin].reads(
                    element_start + shift * width, element_end + shift * width
                )
            elif origin == AVERAGE:
                yield from self._reads_of_averages(element_start, element_end, shift)

    def _reads_of_averages(
        self, first: int, last: int, shift: int
    ) -> Iterator[tuple[Tensor, int, int]]:
        width = self.width
        for row in range(first // width, -(-last // width)):
            begin, end = max(first, row * width), min(last, (row + 1) * width)
            for origin, member_row in self.rows.members(row + shift):
                offset = (member_row - row) * width
                yield from self.tables[origin].reads(begin + offset, end + offset)

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of the rows from which the mean is computed."""
        if self.rows.has_mean:
            yield from self.reads(0, self.rows.named * self.width)

    def working_bytes(self, elements: int) -> float:
        element_bytes = max(
            BITS[table.unrounded.dtype] // 8
            + (BITS[table.dtype] // 8 if table.unrounded is not table else 0)
            for table in self.tables
        )
        mean_bytes = 3 * 4 * self.rows.has_mean  # the rows of the mean, and their sums in float64
        return elements * (element_bytes + mean_bytes) + super().working_bytes(elements)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        if start == stop:
            return
        out_floats, inner_evaluation, width = out.view(np.float32), evaluation.inner(), self.width
        runs = self.rows.runs(start // width, -(-stop // width))
        begins = np.maximum(runs.begins * width, start) - start
        ends = np.minimum(runs.ends * width, stop) - start
        if (runs.origins == ZERO).any():
            out_floats[:] = 0.0
        used_origins = [origin for origin in np.unique(runs.origins).tolist() if origin >= 0]
        kinds = {origin: _kind(self.tables[origin]) for origin in used_origins}
        for kind in dict.fromkeys(kinds.values()):
            origins = [origin for origin in used_origins if kinds[origin] == kind]
            stored_dtype, rounded_dtype = kind
            element_size = BITS[stored_dtype] // 8
            raw = evaluation.take("rows", len(out_floats) * element_size)
            for origin in origins:
                table, is_selected = self.tables[origin].unrounded, runs.origins == origin
                shifts = runs.shifts[is_selected] * width + start
                row_ranges = zip(
                    begins[is_selected].tolist(), ends[is_selected].tolist(), shifts.tolist()
                )
                for begin, end, shift in row_ranges:
                    table.read(
                        inner_evaluation,
                        begin + shift,
                        end + shift,
                        raw[begin * element_size : end * element_size],
                    )
            is_selected = np.isin(runs.origins, origins)
            for begin, end in _joined(begins[is_selected], ends[is_selected]):
                stored_rows = as_vector(
                    raw[begin * element_size : end * element_size], stored_dtype
                )
                _widen(evaluation, stored_rows, stored_dtype, rounded_dtype, out_floats[begin:end])
        for run in np.flatnonzero(runs.origins == MEAN).tolist():
            columns = np.arange(int(begins[run]) + start, int(ends[run]) + start) % width
            out_floats[begins[run] : ends[run]] = self._mean(evaluation)[columns]
        for run in np.flatnonzero(runs.origins == AVERAGE).tolist():
            begin, end = int(begins[run]), int(ends[run])
            shift = int(runs.shifts[run])
            self._average(evaluation, begin + start, end + start, shift, out_floats[begin:end])

    def as_json(self) -> dict[str, Any]:
        return {"rows": self.rows.as_json(), "tables": [table.as_json() for table in self.tables]}

    def _average(
        self, evaluation: Evaluation, begin: int, end: int, row_shift: int, target: np.ndarray
    ) -> None:
        """Write each row's average over all tensors that have its token, summed in float64."""
        width, inner_evaluation = self.width, evaluation.inner()
        for row in range(begin // width, -(-end // width)):
            row_start, row_end = max(begin, row * width), min(end, (row + 1) * width)
            members = self.rows.members(row + row_shift)
            row_sum = np.zeros(row_end - row_start)
            member_values = np.empty(row_end - row_start, np.float32)
            for origin, member_row in members:
                table = self.tables[origin]
                stored_dtype, rounded_dtype = _kind(table)
                shift = (member_row - row) * width
                raw = evaluation.take("member", (row_end - row_start) * (BITS[stored_dtype] // 8))
                table.unrounded.read(inner_evaluation, row_start + shift, row_end + shift, raw)
                _widen(
                    evaluation,
                    as_vector(raw, stored_dtype),
                    stored_dtype,
                    rounded_dtype,
                    member_values,
                )
                row_sum += member_values
            target[row_start - begin : row_end - begin] = row_sum / len(members)

    def _mean(self, evaluation: Evaluation) -> np.ndarray:
        """Return the mean of all rows that have a token, in float32.

        The mean is computed once, in a fixed order.
        """

        def mean() -> np.ndarray:
            width, rows_with_token = self.width, self.rows.named
            rows_at_once = max(1, MEAN_ELEMENTS // width)
            column_sums = np.zeros(width)
            buffer = np.empty(rows_at_once * width, np.float32)
            for row in range(0, rows_with_token, rows_at_once):
                stop = min(row + rows_at_once, rows_with_token)
                rows_of_step = buffer[: (stop - row) * width]
                self.read(
                    evaluation.inner(), row * width, stop * width, rows_of_step.view(np.uint8)
                )
                column_sums += rows_of_step.reshape(-1, width).sum(0, dtype=np.float64)
            return (column_sums / max(1, rows_with_token)).astype(np.float32)

        return evaluation.held.get(self, self.held_bytes, mean)


def _kind(table: Tensor) -> tuple[str, str]:
    """Return the dtypes of a table before and after a merge rounds it."""
    return table.unrounded.dtype, table.dtype


def _widen(
    evaluation: Evaluation, raw: Vector, stored: str, rounded: str, values: np.ndarray
) -> None:
    """Write rows as float32, after they are rounded to the table's type."""
    if stored != rounded:
        rounded_rows = evaluation.vector("rounded", len(raw), code_of(rounded))
        round_to(raw, rounded_rows)
        raw = rounded_rows
    round_to(raw, Vector(values))


def _joined(begins: np.ndarray, ends: np.ndarray) -> list[tuple[int, int]]:
    """Return the ranges that runs cover, with adjacent ranges joined."""
    is_first = np.concatenate(([True], begins[1:] != ends[:-1]))
    is_last = np.concatenate((is_first[1:], [True]))
    return list(zip(begins[is_first].tolist(), ends[is_last].tolist()))
