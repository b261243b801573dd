"""Gates from the base's embedding: sums of the rows of the tokens in each expert's prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import xxhash

from resumerge.experts.upcycling.gates.dependence import dependence_notes
from resumerge.experts.upcycling.gates.directions import unit
from resumerge.experts.upcycling.gates.prompts import PromptTokens, Tokens, splitting_bytes
from resumerge.tensors import Step, Tensor
from resumerge.tensors.computed import Advance, State
from resumerge.tensors.dtypes import FLOAT32_BYTES, FLOAT64_BYTES
from resumerge.tensors.evaluation import Evaluation


@dataclass(frozen=True, eq=False)
class EmbeddedPrompts(Step):
    """The gates of all experts, the same for each layer: (1, experts, hidden).

    A gate is ``unit(unit(p) - unit(n))``, where p and n are the sums of the rows of all tokens in
    the positive and in the negative prompts; ``unit(p)`` without negative prompts. The formula is
    that of cheap_embed in mergekit-moe 0.1.5 (observed). Only the rows of these tokens are read;
    they are summed in float64.

    Args:
        table: the embedding, with a row for each token.
        experts: the tokens of each expert's prompts; shared experts come last.
        routed: the number of experts that are not shared.
    """

    table: Tensor
    experts: tuple[PromptTokens, ...]
    routed: int
    title = "gates from the embedding, part"
    libraries: ClassVar[Mapping[str, str]] = {}
    pieces = 1

    @property
    def nbytes(self) -> int:
        return FLOAT32_BYTES * len(self.experts) * self._width

    @property
    def planning_bytes(self) -> int:
        return splitting_bytes(self.table.shape[0])

    def working_bytes(self, threads: int) -> int:
        return self.nbytes + 6 * FLOAT64_BYTES * self._width

    def seconds(self, threads: int) -> float:
        return 0.0

    @cached_property
    def key(self) -> str:
        tokens = [[e.positive, e.negative] for e in self.experts]
        text = json.dumps({"table": self.table.as_json(), "experts": tokens}, sort_keys=True)
        return xxhash.xxh3_128_hexdigest(text.encode())

    def tensors(self, part: int) -> tuple[Tensor, ...]:
        return (self.table,)

    def reads(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of the embedding's rows, for each token of the prompts."""
        width = self._width
        for expert in self.experts:
            for prompt in (*expert.positive, *expert.negative):
                for token in prompt:
                    yield from self.table.reads(token * width, (token + 1) * width)

    def prepare(self, evaluation: Evaluation, threads: int) -> Advance:
        return lambda state, piece: {"gates": self._gates(evaluation)[None]}

    def begin(self, evaluation: Evaluation) -> State:
        return {}

    def result(self, state: State) -> np.ndarray:
        return state["gates"]

    def notes(self, result: np.ndarray) -> Iterator[str]:
        yield from dependence_notes(result[:, : self.routed])

    def _gates(self, evaluation: Evaluation) -> np.ndarray:
        rows = np.zeros((len(self.experts), self._width), np.float32)
        for row, expert in zip(rows, self.experts):
            direction = unit(self._sum(evaluation, expert.positive))
            if expert.negative:
                direction = unit(direction - unit(self._sum(evaluation, expert.negative)))
            row[:] = direction
        return rows

    def _sum(self, evaluation: Evaluation, prompts: tuple[Tokens, ...]) -> np.ndarray:
        total = np.zeros(self._width)
        for token in (token for prompt in prompts for token in prompt):
            first_element = token * self._width
            total += self.table.floats(evaluation, first_element, first_element + self._width)
        return total

    @property
    def _width(self) -> int:
        return self.table.shape[1]
