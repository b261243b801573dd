"""The two matrices of a LoRA adapter that represent the difference of a model from its base."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.errors import Reason, Resumable
from resumerge.kernels.linalg.low_rank import decompose, is_small, working_bytes
from resumerge.tensors.adapters.both_matrices import BothMatrices
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor

HELD = 1 << 24
"""Elements of the largest difference that is held. Each pass computes larger ones again."""

AT_ONCE = 1 << 20
"""Elements of a difference that are computed together, in whole rows (at least one)."""

GRAM_MILLISECONDS, PASSES_MILLISECONDS = 0.12, 0.4
"""The milliseconds of one core for 2^20 elements of a difference and one direction (measured). The
Gram matrix computes all directions of the shorter side; passes compute only `searched` of them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Factors(BothMatrices):
    """``A``, then ``B``, of rank ``r``, whose product ``B @ A`` is nearest to a difference.

    For a single matrix, ``A`` has the shape (r, in) and ``B`` the shape (out, r). With several
    experts, each expert's matrix has its own factors. ``A`` then has the shape (experts * r, in),
    with the rows of an expert together. ``B`` has the shape (out, r * experts), where each expert
    has every `experts`-th column, as peft reads them (``target_parameters``).

    Args:
        pairs: for each expert, or for the single matrix: the model's and the base's tensor.
        matrix: the (rows, columns) of each tensor.
        transposed: whether the tensors are stored as (in, out).
        rank: r. The factors are zero in directions that are not kept.
        searched: the number of directions that are computed, at least `rank`. It does not depend on
            `rank`, so that a direction has the same bits at any rank.
        distributed: True if both factors are scaled by the square roots of the singular values,
            False if ``A`` is scaled by the singular values.
        epsilon: a direction is kept only if its singular value is larger; 0 keeps all directions.
        energy: the fraction of each difference's energy to keep, with as few directions as
            possible; None to keep all directions.
        key: text that determines the random directions with which the search begins.
        models: the base model and the other model, as text.
    """

    pairs: tuple[tuple[Tensor, Tensor], ...]
    matrix: tuple[int, int]
    transposed: bool
    rank: int
    searched: int
    distributed: bool
    epsilon: float
    energy: float | None
    key: str
    models: tuple[str, str]

    @property
    def outputs(self) -> int:
        """The rows of ``B``."""
        return self.matrix[1] if self.transposed else self.matrix[0]

    @property
    def inputs(self) -> int:
        """The columns of ``A``."""
        return self.matrix[0] if self.transposed else self.matrix[1]

    def with_rank(self, rank: int) -> Factors:
        """Return the same factors with another rank, which is at most `searched`."""
        numel = len(self.pairs) * rank * sum(self.matrix)
        return replace(self, rank=rank, shape=(numel,))

    @property
    def compared_models(self) -> tuple[str, ...]:
        return self.models

    def children(self) -> tuple[Tensor, ...]:
        return tuple(tensor for pair in self.pairs for tensor in pair)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        return replace(self, pairs=tuple(zip(children[::2], children[1::2])))

    @property
    def own_milliseconds(self) -> float:
        rows, columns = self.matrix
        uses_gram = is_small(rows, columns, self._directions)
        gram_milliseconds = GRAM_MILLISECONDS * min(rows, columns)
        passes_milliseconds = PASSES_MILLISECONDS * self.searched
        milliseconds = gram_milliseconds if uses_gram else passes_milliseconds
        return milliseconds * len(self.pairs) * rows * columns / max(1, self.numel)

    def working_bytes(self, elements: int) -> float:
        rows, columns = self.matrix
        held_bytes = 4 * min(rows * columns, HELD)
        piece_bytes = 3 * 4 * max(AT_ONCE, columns)
        operand_bytes = max(child.working_bytes(max(AT_ONCE, columns)) for child in self.children())
        decomposition_bytes = working_bytes(rows, columns, self._directions)
        return held_bytes + piece_bytes + operand_bytes + decomposition_bytes + 3 * 4 * self.numel

    def as_json(self) -> dict[str, Any]:
        return {
            "factors": [[tensor.as_json() for tensor in pair] for pair in self.pairs],
            "rank": self.rank,
            "transposed": self.transposed,
            "distributed": self.distributed,
            "epsilon": self.epsilon,
            **({} if self.energy is None else {"energy": self.energy}),
        }

    @property
    def _directions(self) -> int:
        """The number of singular directions that are computed for one matrix."""
        return min(self.searched, *self.matrix)

    def _directions_kept(self, values: np.ndarray, energy: float) -> int:
        """Return the number of leading directions that are kept.

        Args:
            values: the singular values, descending.
            energy: the energy of the difference: the sum of the squares of its elements.
        """
        direction_count = int((values > self.epsilon).sum()) if self.epsilon else len(values)
        if self.energy is not None:
            reaches_energy = np.cumsum(np.square(values)) >= self.energy * energy
            direction_count = min(
                direction_count,
                int(np.argmax(reaches_energy)) + 1 if reaches_energy.any() else direction_count,
            )
        return min(direction_count, self.rank)

    def compute(self, evaluation: Evaluation) -> tuple[np.ndarray, float, float]:
        matrix_count, rank = len(self.pairs), self.rank
        both_matrices = np.zeros(self.numel, np.float32)
        a = both_matrices[: matrix_count * rank * self.inputs].reshape(
            matrix_count, rank, self.inputs
        )
        b = both_matrices[matrix_count * rank * self.inputs :].reshape(
            self.outputs, rank, matrix_count
        )
        difference_energy = kept_energy = 0.0
        for number, pair in enumerate(self.pairs):
            left, values, right, energy = self._decomposed(evaluation, number, pair)
            directions = self._directions_kept(values, energy)
            values, left, right = values[:directions], left[:, :directions], right[:directions]
            difference_energy += energy
            kept_energy += float(np.square(values).sum())
            factor_of_a = np.sqrt(values) if self.distributed else values
            factor_of_b = np.sqrt(values) if self.distributed else (values > 0.0).astype(np.float64)
            sides = (left.T, right.T) if self.transposed else (right, left)
            a[number, :directions] = factor_of_a.astype(np.float32)[:, None] * sides[0]
            b[:, :directions, number] = sides[1] * factor_of_b.astype(np.float32)
        return both_matrices, difference_energy, kept_energy

    def _decomposed(
        self, evaluation: Evaluation, number: int, pair: tuple[Tensor, Tensor]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        rows, columns = self.matrix
        inner_evaluation = evaluation.inner()
        rows_at_once = max(1, AT_ONCE // columns)

        def difference() -> Iterator[np.ndarray]:
            for top in range(0, rows, rows_at_once):
                start, stop = top * columns, min(top + rows_at_once, rows) * columns
                model_values, base_values = (
                    tensor.floats(inner_evaluation, start, stop) for tensor in pair
                )
                yield np.subtract(model_values, base_values, out=model_values).reshape(-1, columns)

        held_pieces = list(difference()) if rows * columns <= HELD else None
        try:
            decomposition = decompose(
                difference if held_pieces is None else lambda: held_pieces,
                self.matrix,
                self._directions,
                f"{self.key}/{number}",
            )
        except FloatingPointError:
            raise Resumable(
                Reason.METHOD,
                f"{self.name} of {self.models[1]} differs from that of {self.models[0]} by numbers "
                "that are not finite, so that it cannot be decomposed.\nLeave it out "
                f"(--exclude-regex '{self.name}'), or save it whole (--save-module {self.name}).",
            ) from None
        return decomposition.left, decomposition.values, decomposition.right, decomposition.energy
