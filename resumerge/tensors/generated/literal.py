"""A small tensor whose numbers are listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor

_TYPES = {"F32": np.float32, "U8": np.uint8}


@dataclass(frozen=True)
class Literal(Tensor):
    """A vector of a few listed numbers, in F32 or U8.

    Args:
        numbers: the elements, in order.
    """

    numbers: tuple[float, ...]

    @classmethod
    def of(cls, name: str, dtype: str, numbers: tuple[float, ...]) -> Literal:
        """Return numbers as a vector in F32 or U8."""
        assert dtype in _TYPES
        return cls(name, dtype, (len(numbers),), numbers)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        kind = _TYPES[self.dtype]
        out.view(kind)[:] = np.array(self.numbers[start:stop], kind)

    def as_json(self) -> dict[str, Any]:
        return {"literal": list(self.numbers), "dtype": self.dtype}
