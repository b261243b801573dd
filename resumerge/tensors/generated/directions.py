"""Directions in the space of an embedding: where the tokens of some prompts lie."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash

from resumerge.tensors.base import Tensor
from resumerge.tensors.evaluation import Evaluation

SMALLEST_NORM = 1e-8
"""A shorter vector is divided by this instead of its length."""


@dataclass(frozen=True)
class Prompts:
    """The tokens of one direction's prompts, all together: numbers of rows.

    Args:
        away: those that it turns away from.
    """

    towards: tuple[int, ...]
    away: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Directions(Tensor):
    """Unit vectors, one row each, in float32.

    A row is ``unit(unit(sum(rows of towards)) - unit(sum(rows of away)))``, as cheap_embed of
    mergekit-moe 0.1.5 makes it (observed). Only these rows of the table are read, and summed in
    float64; lengths are exact sums, so that the bits depend on no library.

    Args:
        table: a row for each token.
    """

    table: Tensor
    prompts: tuple[Prompts, ...]

    @classmethod
    def of(cls, name: str, table: Tensor, prompts: tuple[Prompts, ...]) -> Directions:
        """A direction for each of the prompts."""
        return cls(name, "F32", (len(prompts), table.shape[1]), table, prompts)

    def children(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [table] = children
        return replace(self, table=table)

    def passed(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Nothing: the few rows may be read again."""
        yield from ()

    def working_bytes(self, elements: int) -> float:
        width = self.shape[1]
        return 8 * (self.numel + 6 * width) + self.table.working_bytes(width)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        rows = evaluation.held.get(self, self.nbytes, lambda: self._rows(evaluation.inner()))
        out.view(np.float32)[:] = rows.reshape(-1)[start:stop]

    def as_json(self) -> dict[str, Any]:
        digests = [
            {"towards": _digest(prompts.towards), "away": _digest(prompts.away)}
            for prompts in self.prompts
        ]
        return {"directions": digests, "table": self.table.as_json()}

    def _rows(self, evaluation: Evaluation) -> np.ndarray:
        rows = np.zeros(self.shape, np.float32)
        for row, prompts in zip(rows, self.prompts):
            direction = unit(self._sum(evaluation, prompts.towards))
            if prompts.away:
                direction = unit(direction - unit(self._sum(evaluation, prompts.away)))
            row[:] = direction
        return rows

    def _sum(self, evaluation: Evaluation, tokens: tuple[int, ...]) -> np.ndarray:
        width = self.shape[1]
        total = np.zeros(width)
        for token in tokens:
            total += self.table.floats(evaluation, token * width, (token + 1) * width)
        return total


def unit(vector: np.ndarray) -> np.ndarray:
    """A vector of length 1 (float64), or a shorter one where it is almost zero."""
    norm = math.sqrt(math.fsum((vector * vector).tolist()))
    result: np.ndarray = vector / max(norm, SMALLEST_NORM)
    return result


def _digest(tokens: tuple[int, ...]) -> str:
    return xxhash.xxh3_128_hexdigest(" ".join(map(str, tokens)).encode())
