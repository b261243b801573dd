"""The two matrices of a LoRA adapter that a merge method combines from several adapters."""

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
    concatenated,
    core_shape,
    core_space,
    energy,
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
"""The milliseconds of one core for 2^20 elements of all factors and one direction (measured)."""


@dataclass(frozen=True)
class AdapterPair:
    """The matrices of one adapter for a module, which change it by ``scale * B @ A``.

    Args:
        place: the number of the adapter among the recipe's adapters.
        a: shape (experts * rank, inputs), with further dimensions for a convolution.
        b: shape (outputs, experts * rank), with further dimensions for a convolution.
        rank: the rank of one expert's change.
    """

    place: int
    a: Tensor
    b: Tensor
    scale: float
    rank: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Combined(BothMatrices):
    """``A``, then ``B``: their product merges the changes ``B_i @ A_i`` of several adapters.

    The method computes in core space: see `resumerge.kernels.linalg.core_space`. For a weighted
    sum that need not be compressed, the adapters' matrices are concatenated instead. The matrices
    of several experts are arranged as in `Factors`.

    Args:
        pairs: the matrices of each adapter that changes the module. Other adapters change it by 0.
        core: the method with its parameters. Its operands are cores, which are held in memory.
        factors: the factor of each adapter's change in a weighted sum that is not compressed; empty
            for any other method.
        experts: the number of experts, each with a matrix; 1 for a plain module.
        matrix: the (outputs, inputs) of each matrix.
        rank: the rank of the result. If the merged change has a smaller rank, the remaining rows of
            ``A`` and columns of ``B`` are zeros.
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
        """The names of the zero change and of the combined change."""
        return "no change", f"the combined change ({self.core.method})"

    def children(self) -> tuple[Tensor, ...]:
        return tuple(tensor for pair in self.pairs for tensor in (pair.a, pair.b))

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        matrices = zip(children[::2], children[1::2])
        pairs = (replace(pair, a=a, b=b) for pair, (a, b) in zip(self.pairs, matrices))
        return replace(self, pairs=tuple(pairs))

    @property
    def own_milliseconds(self) -> float:
        operand_elements = sum(child.numel for child in self.children())
        return MILLISECONDS * self._ranks * operand_elements / max(1, self.numel)

    def working_bytes(self, elements: int) -> float:
        operand_elements = sum(child.numel for child in self.children())
        matrix_bytes = (
            4 * operand_elements + 8 * operand_elements // self.experts + 3 * 4 * self.numel
        )
        if self.factors:
            return matrix_bytes + 8 * operand_elements // self.experts
        core_count = len(self.core.operands) + 1
        decomposition_bytes = working_bytes(self.matrix, self._ranks)
        rows, columns = self.core.shape
        decomposition_bytes += bytes_to_decompose(rows, columns, self._directions)
        placed_bytes = 8 * self.rank * sum(self.matrix)
        return (
            matrix_bytes
            + decomposition_bytes
            + placed_bytes
            + 4 * core_count * self.core.numel
            + self._of_method
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "combined": [
                {"a": pair.a.as_json(), "b": pair.b.as_json(), "scale": pair.scale}
                for pair in self.pairs
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
        """The number of singular directions that are computed for one matrix."""
        return min(self.rank, *self.core.shape)

    @property
    def _of_method(self) -> float:
        """The bytes that the method needs in addition to the cores."""
        return self.core.computing_bytes(self.core.numel) + self.core.merge_method.statistics_bytes(
            self.core.context
        )

    def compute(self, evaluation: Evaluation) -> tuple[np.ndarray, float, float]:
        (outputs, inputs), rank = self.matrix, self.rank
        both_matrices = np.zeros(self.numel, np.float32)
        a_elements = self.experts * rank * inputs
        a = both_matrices[:a_elements].reshape(self.experts, rank, inputs)
        b = both_matrices[a_elements:].reshape(outputs, rank, self.experts)
        change_energy = product_energy = 0.0
        adapter_matrices = self._matrices(evaluation)
        for number in range(self.experts):
            products = [
                (
                    pair.scale * adapter_b[:, :, number].astype(np.float64),
                    adapter_a[number].astype(float),
                )
                for pair, (adapter_a, adapter_b) in zip(self.pairs, adapter_matrices)
            ]
            try:
                left, right, expert_energy, expert_product_energy = self._combined(
                    evaluation, products, number
                )
            except FloatingPointError:
                raise self._not_finite() from None
            a[number, : len(right)], b[:, : len(right), number] = right, left
            change_energy += expert_energy
            product_energy += expert_product_energy
        return both_matrices, change_energy, product_energy

    def _matrices(self, evaluation: Evaluation) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return each adapter's A as (experts, rank, inputs) and B as (outputs, rank, experts)."""
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
        """Return the factors of one merged matrix, its energy, and that of the factors' product.

        Args:
            evaluation: the backend to compute the method with.
            products: the change of each adapter, as a product of two matrices.
            number: the number of the expert, from 0, which the random directions depend on.

        Raises:
            FloatingPointError: not all elements are finite.
        """
        if self.factors:
            product = concatenated(products, [self.factors[pair.place] for pair in self.pairs])
            product_energy = energy(product)
            if not np.isfinite(product_energy):
                raise FloatingPointError("not all elements are finite")
            return *product, product_energy, product_energy
        space = core_space(products, self.matrix)
        merged_core = self._merged(evaluation, space.cores, number)
        decomposition = decompose(
            lambda: [merged_core], merged_core.shape, self._directions, f"{self.name}/{number}"
        )
        roots = np.sqrt(decomposition.values)
        left, right = space.placed(decomposition.left * roots, roots[:, None] * decomposition.right)
        return left, right, decomposition.energy, float(np.square(decomposition.values).sum())

    def _merged(
        self, evaluation: Evaluation, cores: Sequence[np.ndarray], number: int
    ) -> np.ndarray:
        """Return the method's result for the adapters' cores: float32, in the shape of a core."""
        core, size = self.core, self.core.block_elements
        if self.experts > 1:  # the name is part of the key of random masks
            core = replace(core, name=f"{core.name}[{number}]")
        operands = [np.zeros(core.numel, np.float32) for _ in core.operands]
        for pair, adapter_core in zip(self.pairs, cores):
            operands[pair.place] = adapter_core.reshape(-1)
        backend = evaluation.backend_of(core)

        def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
            run = BlockRun.of(core.numel, size, range(core.blocks), sample=sample)
            ranges = run.ranges()
            samples = [np.concatenate([operand[s:e] for s, e in ranges]) for operand in operands]
            yield from backend.map(
                function, [Vector(sampled_operand) for sampled_operand in samples], run
            )

        statistics = (
            core.merge_method.statistics(core.context, scan) if core.needs_statistics else None
        )
        merged_core = np.empty(core.numel, np.float32)
        run = core.block_run(range(core.blocks))
        backend.compute(
            [Vector(operand) for operand in operands], run, statistics, Vector(merged_core)
        )
        return merged_core.reshape(core.shape)

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
        ranks: the ranks of the combined changes.
        matrix: the (outputs, inputs) of the module.
    """
    return min(core_shape(matrix, sum(ranks)))
