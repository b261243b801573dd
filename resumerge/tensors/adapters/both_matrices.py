"""The base class of both matrices of a LoRA adapter as one tensor, computed together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from resumerge.kernels import round_to
from resumerge.native import Vector
from resumerge.tensors.evaluation import Evaluation, as_vector
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class BothMatrices(Tensor):
    """``A``, then ``B``, flattened. To read any range, both matrices are computed."""

    @abstractmethod
    def compute(self, evaluation: Evaluation) -> tuple[np.ndarray, float, float]:
        """Compute both matrices.

        Returns:
            Both matrices, flattened, in float32; the energy of the change that they represent; and
            the energy of their product ``B @ A``. The energy of a matrix is the sum of the squares
            of its elements.
        """

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if stop == self.numel:
            yield from self.reads(start, stop)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for tensor in self.children():
            yield from tensor.reads(0, tensor.numel)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        both_matrices, change_energy, product_energy = self.compute(evaluation)
        if evaluation.measurements is not None:
            evaluation.measurements.append(self.measured(change_energy, product_energy))
        round_to(Vector(both_matrices[start:stop]), as_vector(out, self.dtype))

    def measured(self, total: float, kept: float) -> np.ndarray:
        """Return the measurements: `intended` is of the change, `change` of the factors' product.

        The sums are in the order of `resumerge.kernels.measurements.measure`.

        Args:
            total: the energy of the change.
            kept: the energy of the factors' product.
        """
        elements, kept, has_change = self.numel, min(kept, total), float(total > 0.0)
        change_sums = [elements, total, kept, 0.0, 0.0, 0.0, 1.0 - has_change, 0.0, 0.0, 0.0, 0.0]
        return np.array([[*change_sums, total, kept, elements * has_change, 1.0 - has_change, 0.0]])
