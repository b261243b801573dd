"""A tensor whose elements are all one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.kernels import round_to
from resumerge.native import Vector
from resumerge.tensors.evaluation import Evaluation, as_vector
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True)
class Filled(Tensor):
    """A tensor whose elements are all equal.

    Args:
        value: the value of each element, rounded to `dtype`.
    """

    value: float

    def working_bytes(self, elements: int) -> float:
        return 4 * elements

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        values = Vector(np.full(stop - start, self.value, np.float32))
        round_to(values, as_vector(out, self.dtype))

    def as_json(self) -> dict[str, Any]:
        return {"filled": self.value, "dtype": self.dtype, "shape": list(self.shape)}
