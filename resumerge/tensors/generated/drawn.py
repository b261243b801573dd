"""A tensor of random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.kernels.draws import WORKING_BYTES, normals, uniforms
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True)
class Drawn(Tensor):
    """Independent random numbers, in float32.

    Args:
        key: text that determines the numbers; equal keys give equal numbers.
        bound: numbers are uniform between ``-bound`` and ``bound``; None for standard normal
            numbers.
    """

    key: str
    bound: float | None = None

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], key: str, bound: float | None = None) -> Drawn:
        """Return a tensor of random numbers with a name and a shape."""
        return cls(name, "F32", shape, key, bound)

    def working_bytes(self, elements: int) -> float:
        return 2 * 8 * elements + WORKING_BYTES

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        if self.bound is None:
            out.view(np.float32)[:] = normals(self.key, start, stop)
        else:
            uniform = uniforms(self.key, start, stop)
            out.view(np.float32)[:] = (uniform * 2.0 - 1.0) * self.bound

    def as_json(self) -> dict[str, Any]:
        kind = "normal" if self.bound is None else {"uniform": self.bound}
        return {"drawn": kind, "key": self.key, "shape": list(self.shape)}
