"""Reading operands whose rows come from different rows of several tensors.

A block of such an operand is gathered by one `preadv` for each run of consecutive rows. The result
depends on the elements asked for alone, not on how a tensor is split into blocks.
"""

from __future__ import annotations

import threading

import numpy as np

from resumerge.engine.execute.evaluation.buffers import Buffers
from resumerge.kernels import round_to
from resumerge.native import CODES, Vector
from resumerge.planning.plan import BLOCK
from resumerge.sources.dtypes import BITS, FLOATS
from resumerge.sources.reader import SourceReader
from resumerge.sources.tokenizers.row_map import AVERAGE, MEAN, ZERO, RowMap


class RowReader:
    """Gathers rows as float32; may be used by many threads at once."""

    def __init__(self, reader: SourceReader, buffers: Buffers) -> None:
        self._reader = reader
        self._buffers = buffers
        self._means: dict[RowMap, np.ndarray] = {}
        self._lock = threading.Lock()

    def read_into(
        self, map_: RowMap, start: int, stop: int, cast: str | None, values: np.ndarray
    ) -> None:
        """Read elements ``start:stop``, counted in the output's rows.

        Args:
            cast: torch name of the dtype that rows are rounded to first, or None.
            values: float32, as long as the range.
        """
        width = map_.width
        runs = map_.rows.runs(start // width, -(-stop // width))
        begins = np.maximum(runs.begins * width, start) - start
        ends = np.minimum(runs.ends * width, stop) - start
        if (runs.origins == ZERO).any():
            values[:] = 0.0
        used = [origin for origin in np.unique(runs.origins).tolist() if origin >= 0]
        for dtype in dict.fromkeys(map_.tables[origin][1].dtype for origin in used):
            tables = [origin for origin in used if map_.tables[origin][1].dtype == dtype]
            size = BITS[dtype] // 8
            read = self._buffers.vector("rows", len(values), CODES[FLOATS[dtype]])
            raw = read.data.view(np.uint8)
            for origin in tables:
                number, tensor = map_.tables[origin]
                mine = runs.origins == origin
                first = begins[mine] + start + runs.shifts[mine] * width
                last = ends[mine] + start + runs.shifts[mine] * width
                bytes_at = begins[mine] * size
                for begin, end, at in zip(first.tolist(), last.tolist(), bytes_at.tolist()):
                    self._reader.read_into(number, tensor, begin, end, raw.data[at:])
            mine = np.isin(runs.origins, tables)
            for begin, end in _joined(begins[mine], ends[mine]):
                self._widen(Vector(read.data[begin:end], read.dtype), cast, values[begin:end])
        for run in np.flatnonzero(runs.origins == MEAN).tolist():
            within = np.arange(int(begins[run]) + start, int(ends[run]) + start) % width
            values[begins[run] : ends[run]] = self._mean(map_, cast)[within]
        for run in np.flatnonzero(runs.origins == AVERAGE).tolist():
            begin, end = int(begins[run]), int(ends[run])
            shift = int(runs.shifts[run])
            self._average(map_, begin + start, end + start, shift, cast, values[begin:end])

    def _average(
        self,
        map_: RowMap,
        begin: int,
        end: int,
        row_shift: int,
        cast: str | None,
        target: np.ndarray,
    ) -> None:
        """The average of the rows of those tensors that have the token, summed in float64."""
        width = map_.width
        for row in range(begin // width, -(-end // width)):
            first, last = max(begin, row * width), min(end, (row + 1) * width)
            members = map_.rows.members(row + row_shift)
            total = np.zeros(last - first)
            values = np.empty(last - first, np.float32)
            for origin, member_row in members:
                number, tensor = map_.tables[origin]
                shift = (member_row - row) * width
                read = self._buffers.vector("member", last - first, CODES[FLOATS[tensor.dtype]])
                raw = read.data.view(np.uint8).data
                self._reader.read_into(number, tensor, first + shift, last + shift, raw)
                self._widen(read, cast, values)
                total += values
            target[first - begin : last - begin] = total / len(members)

    def _mean(self, map_: RowMap, cast: str | None) -> np.ndarray:
        """The mean of all rows that have a token, in float32; computed once, in a fixed order."""
        with self._lock:
            if map_ not in self._means:
                width = map_.width
                step = max(1, BLOCK // width)
                total = np.zeros(width)
                held = np.empty(step * width, np.float32)
                for first in range(0, map_.rows.named, step):
                    stop = min(first + step, map_.rows.named)
                    part = held[: (stop - first) * width]
                    self.read_into(map_, first * width, stop * width, cast, part)
                    total += part.reshape(-1, width).sum(0, dtype=np.float64)
                self._means[map_] = (total / max(1, map_.rows.named)).astype(np.float32)
            return self._means[map_]

    def _widen(self, read: Vector, cast: str | None, values: np.ndarray) -> None:
        """Write what was read as float32, rounded to the recipe's dtype before."""
        if cast is not None:
            rounded = self._buffers.vector("rounded", len(read), CODES[cast])
            round_to(read, rounded)
            read = rounded
        round_to(read, Vector(values))


def _joined(begins: np.ndarray, ends: np.ndarray) -> list[tuple[int, int]]:
    """The ranges that runs cover, those that touch as one."""
    first = np.concatenate(([True], begins[1:] != ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return list(zip(begins[first].tolist(), ends[last].tolist()))
