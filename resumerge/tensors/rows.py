"""The tensor and row that each row of an embedding comes from, as runs of consecutive rows.

A change of vocabulary is a permutation matrix. A run takes 24 bytes. A vocabulary that only grows
at its end has two runs; a vocabulary in random order has one run for each token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xxhash

ZERO = -1
"""Origin of a row of zeros."""

AVERAGE = -2
"""Origin of a row that is the average of one token's rows in several tensors."""

MEAN = -3
"""Origin of a row of padding: the mean of all rows that have a token."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Consecutive runs of rows, with one array for each property.

    Args:
        begins: first row of each run.
        ends: one past the last row of each run.
        origins: origin of each run, as in `Rows`.
        shifts: for each run, the number to add to a row's number to get its source row.
    """

    begins: np.ndarray
    ends: np.ndarray
    origins: np.ndarray
    shifts: np.ndarray


@dataclass(frozen=True, eq=False)
class Rows:
    """The origin of each row of an embedding. Tensors are identified by number.

    Args:
        starts: first row of each run, ascending from 0; int64.
        origins: for each run, the number of the tensor, or `ZERO`, `AVERAGE` or `MEAN`.
        firsts: for each run, the source row of its first row; for an `AVERAGE`, the number of the
            average.
        count: number of rows.
        named: number of rows that have a token. These rows come first; a `MEAN` is their mean.
        offsets: index of the first member of each average, and then one past the last member.
        member_origins: number of each member's tensor.
        member_rows: for each member, the number of its row in its tensor.
    """

    starts: np.ndarray
    origins: np.ndarray
    firsts: np.ndarray
    count: int
    named: int
    offsets: np.ndarray
    member_origins: np.ndarray
    member_rows: np.ndarray

    @classmethod
    def of(
        cls,
        origins: np.ndarray,
        firsts: np.ndarray,
        named: int,
        averages: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> Rows:
        """Return the runs of rows, from the origin and the source row of each row.

        Args:
            origins: origin of each row.
            firsts: source row of each row; for an `AVERAGE`, the number of the average.
            named: number of rows that have a token. These rows come first.
            averages: `offsets`, `member_origins` and `member_rows`.
        """
        steps = firsts[1:] - firsts[:-1]
        has_no_source_row = (origins[1:] == ZERO) | (origins[1:] == MEAN)
        is_break = (origins[1:] != origins[:-1]) | ((steps != 1) & ~has_no_source_row)
        starts = np.concatenate(([0], np.flatnonzero(is_break) + 1)).astype(np.int64)
        return cls(starts, origins[starts], firsts[starts], len(origins), named, *averages)

    def runs(self, first: int, stop: int) -> Runs:
        """Return the runs in rows ``first:stop``."""
        run = slice(
            int(np.searchsorted(self.starts, first, "right")) - 1,
            int(np.searchsorted(self.starts, stop, "left")),
        )
        starts = self.starts[run]
        return Runs(
            np.maximum(starts, first),
            np.append(starts[1:], stop),
            self.origins[run],
            self.firsts[run] - starts,
        )

    def members(self, average: int) -> list[tuple[int, int]]:
        """Return (number of the tensor, row) of every member of an average."""
        members = slice(int(self.offsets[average]), int(self.offsets[average + 1]))
        return list(zip(self.member_origins[members].tolist(), self.member_rows[members].tolist()))

    def is_identity(self, origin: int, rows: int) -> bool:
        """Return whether the rows are all rows of one tensor, in the same order.

        Args:
            origin: the number of the tensor.
            rows: the number of rows that this tensor has.
        """
        is_one_run = len(self.starts) == 1 and self.count == rows
        return is_one_run and self.origins[0] == origin and self.firsts[0] == 0

    @cached_property
    def has_mean(self) -> bool:
        """Whether there are rows of padding."""
        return bool((self.origins == MEAN).any())

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays in memory."""
        return sum(array.nbytes for array in self._arrays())

    def as_json(self) -> dict[str, Any]:
        """Return the size and a checksum, which the ledger stores."""
        digest = xxhash.xxh3_128()
        for array in self._arrays():
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return {"count": self.count, "runs": len(self.starts), "checksum": digest.hexdigest()}

    def _arrays(self) -> tuple[np.ndarray, ...]:
        averages = (self.offsets, self.member_origins, self.member_rows)
        return (self.starts, self.origins, self.firsts, *averages)


def vocabulary_rows(shape: tuple[int, ...]) -> int:
    """Return the number of rows of an embedding: the size of the first axis that is not 1."""
    return next((size for size in shape if size != 1), 1)
