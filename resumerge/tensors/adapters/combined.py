"""The two matrices of a LoRA adapter that a merge method makes of several adapters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.errors import Reason, Resumable
from resumerge.kernels import BlockRun
from resumerge.kernels.blocks import MapFunction
from resumerge.kernels.linalg.core_space import (
    Product,
    core_shape,
    core_space,
    energy,
    stacked,
    working_bytes,
)
from resumerge.kernels.linalg.low_rank import decompose
from resumerge.kernels.linalg.low_rank import working_bytes as bytes_to_decompose
from resumerge.native import Vector
from resumerge.tensors.adapters.both_matrices import BothMatrices
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.merged import Merged
from resumerge.tensors.tensor import Tensor

MILLISECONDS = 6.0
"""The time of one core for 2^20 elements of all factors and one direction (measured)."""


@dataclass(frozen=True)
class AdapterPair:
    """The matrices of one adapter for a module: its change is ``scale * B @ A``.

    Args:
        place: the place of the adapter among those of the recipe.
        a: shape (experts * rank, inputs), or with further dimensions for a convolution.
        b: shape (outputs, experts * rank), likewise.
        rank: the rank of one expert's change.
    """

    place: int
    a: Tensor
    b: Tensor
    scale: float
    rank: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Combined(BothMatrices):
    """``A``, then ``B``, whose product is what a merge method makes of the products of others.

    The method computes in core space: `resumerge.kernels.linalg.core_space`. For a weighted sum
    that need not be compressed, the factors are put beside each other. Of experts, the factors are
    arranged as in `Factors`.

    Args:
        pairs: the matrices of each adapter that changes the module; the others' change is zero.
        core: the method with its parameters, on cores: what it computes with is in memory.
        factors: what each adapter's change is multiplied by, if it is a weighted sum that is not
            compressed; else none.
        experts: the number of matrices.
        matrix: the (outputs, inputs) of each.
        rank: the rank of the result; directions beyond what there is are zeros.
    """

    pairs: tuple[AdapterPair, ...]
    core: Merged
    factors: tuple[float, ...]
    experts: int
    matrix: tuple[int, int]
    rank: int

    @property
    def uses_torch(self) -> bool:
        """Whether the method computes with torch."""
        return self.core.uses_torch

    @property
    def compared_models(self) -> tuple[str, ...]:
        """The zero change, then the combined one, in words."""
        return "no change", f"the combined change ({self.core.method})"

    def children(self) -> tuple[Tensor, ...]:
        return tuple(tensor for pair in self.pairs for tensor in (pair.a, pair.b))

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        both = zip(children[::2], children[1::2])
        pairs = (replace(pair, a=a, b=b) for pair, (a, b) in zip(self.pairs, both))
        return replace(self, pairs=tuple(pairs))

    @property
    def own_milliseconds(self) -> float:
        given = sum(child.numel for child in self.children())
        return MILLISECONDS * self._ranks * given / max(1, self.numel)

    def working_bytes(self, elements: int) -> float:
        given = sum(child.numel for child in self.children())
        held = 4 * given + 8 * given // self.experts + 3 * 4 * self.numel
        if self.factors:
            return held + 8 * given // self.experts
        cores = len(self.core.operands) + 1
        dense = working_bytes(self.matrix, self._ranks)
        rows, columns = self.core.shape
        dense += bytes_to_decompose(rows, columns, self._directions)
        placed = 8 * self.rank * sum(self.matrix)
        return held + dense + placed + 4 * cores * self.core.numel + self._of_method

    def as_json(self) -> dict[str, Any]:
        return {
            "combined": [
                {"a": p.a.as_json(), "b": p.b.as_json(), "scale": p.scale} for p in self.pairs
            ],
            "by": {
                "method": self.core.method,
                "params": dict(self.core.params),
                "per_operand": [dict(params) for params in self.core.per_operand],
            },
            **({"factors": list(self.factors)} if self.factors else {}),
            "rank": self.rank,
        }

    @property
    def _ranks(self) -> int:
        """The sum of the ranks of all adapters' changes."""
        return sum(pair.rank for pair in self.pairs)

    @property
    def _directions(self) -> int:
        """The directions that are looked for in one matrix."""
        return min(self.rank, *self.core.shape)

    @property
    def _of_method(self) -> float:
        """The bytes that the method takes, beside the cores."""
        return self.core.computing_bytes(self.core.numel) + self.core.merge_method.statistics_bytes(
            self.core.context
        )

    def compute(self, evaluation: Evaluation) -> tuple[np.ndarray, float, float]:
        (outputs, inputs), rank = self.matrix, self.rank
        result = np.zeros(self.numel, np.float32)
        split = self.experts * rank * inputs
        a = result[:split].reshape(self.experts, rank, inputs)
        b = result[split:].reshape(outputs, rank, self.experts)
        total = kept = 0.0
        given = self._given(evaluation)
        for number in range(self.experts):
            products = [
                (pair.scale * of_b[:, :, number].astype(np.float64), of_a[number].astype(float))
                for pair, (of_a, of_b) in zip(self.pairs, given)
            ]
            try:
                left, right, whole, some = self._combined(evaluation, products, number)
            except FloatingPointError:
                raise self._not_finite() from None
            a[number, : len(right)], b[:, : len(right), number] = right, left
            total, kept = total + whole, kept + some
        return result, total, kept

    def _given(self, evaluation: Evaluation) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return A as (experts, rank, inputs) and B as (outputs, rank, experts) of each adapter."""
        inner = evaluation.inner()
        return [
            (
                pair.a.floats(inner, 0, pair.a.numel).reshape(self.experts, pair.rank, -1),
                pair.b.floats(inner, 0, pair.b.numel).reshape(-1, pair.rank, self.experts),
            )
            for pair in self.pairs
        ]

    def _combined(
        self, evaluation: Evaluation, products: list[Product], number: int
    ) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Return the factors of one matrix, its energy, and how much of that they have."""
        if self.factors:
            product = stacked(products, [self.factors[pair.place] for pair in self.pairs])
            whole = energy(product)
            if not np.isfinite(whole):
                raise FloatingPointError("not all elements are finite")
            return *product, whole, whole
        space = core_space(products, self.matrix)
        merged = self._merged(evaluation, space.cores, number)
        found = decompose(lambda: [merged], merged.shape, self._directions, f"{self.name}/{number}")
        roots = np.sqrt(found.values)
        left, right = space.placed(found.left * roots, roots[:, None] * found.right)
        return left, right, found.energy, float(np.square(found.values).sum())

    def _merged(
        self, evaluation: Evaluation, cores: Sequence[np.ndarray], number: int
    ) -> np.ndarray:
        """Return the method's result for cores: float32, in their shape."""
        core, size = self.core, self.core.block_elements
        if self.experts > 1:  # the name is a part of the key of random masks
            core = replace(core, name=f"{core.name}[{number}]")
        operands = [np.zeros(core.numel, np.float32) for _ in core.operands]
        for pair, own in zip(self.pairs, cores):
            operands[pair.place] = own.reshape(-1)
        backend = evaluation.backend_of(core)

        def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
            run = BlockRun.of(core.numel, size, range(core.blocks), sample=sample)
            ranges = run.ranges()
            parts = [np.concatenate([each[s:e] for s, e in ranges]) for each in operands]
            yield from backend.map(function, [Vector(part) for part in parts], run)

        statistics = (
            core.merge_method.statistics(core.context, scan) if core.needs_statistics else None
        )
        result = np.empty(core.numel, np.float32)
        run = core.block_run(range(core.blocks))
        backend.compute([Vector(each) for each in operands], run, statistics, Vector(result))
        return result.reshape(core.shape)

    def _not_finite(self) -> Resumable:
        return Resumable(
            Reason.METHOD,
            f"The adapters change {self.name} by numbers that are not finite, so that their "
            "changes cannot be combined.\nTake earlier checkpoints of the training: it has "
            "diverged.",
        )


def rank_of_sum(ranks: Sequence[int], matrix: tuple[int, int]) -> int:
    """Return the highest rank that a method's result may have.

    Args:
        ranks: the ranks of what it combines.
        matrix: the shape.
    """
    return min(core_shape(matrix, sum(ranks)))
