"""A tensor in another dtype."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.kernels import round_to
from resumerge.tensors.dtypes import BITS, BY_TORCH_NAME
from resumerge.tensors.evaluation import Evaluation, as_vector, bytes_of, code_of
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True)
class Rounded(Tensor):
    """Each element of a tensor rounded to `dtype`: to nearest, ties to even.

    Args:
        operand: a tensor of a float type.
        as_input: True if a merge rounds its input, False if a model rounds its own tensor. The
            hashes of inputs are of the unrounded elements.
        takes_operand: whether a merge reads the operand without this rounding, because the operand
            is a tensor of an adapter or a dequantised weight.
    """

    operand: Tensor
    as_input: bool = False
    takes_operand: bool = False

    @classmethod
    def of(
        cls, operand: Tensor, dtype: str, *, as_input: bool = False, takes_operand: bool = False
    ) -> Tensor:
        """Return a tensor rounded to a dtype; the tensor itself if it already has the dtype."""
        if operand.dtype == dtype:
            return operand
        return cls(operand.name, dtype, operand.shape, operand, as_input, takes_operand)

    @property
    def unrounded(self) -> Tensor:
        return self.operand if self.as_input else self

    @property
    def exact(self) -> Tensor:
        """The operand, if `takes_operand` and the rounding narrows it; otherwise this tensor."""
        narrows_operand = self.takes_operand and BITS[self.dtype] < BITS[self.operand.dtype]
        return self.operand if narrows_operand else self

    def children(self) -> tuple[Tensor, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [operand] = children
        return replace(self, operand=operand)

    def working_bytes(self, elements: int) -> float:
        element_bytes = BITS[self.operand.dtype] // 8
        return elements * element_bytes + self.operand.working_bytes(elements)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        unrounded = evaluation.vector("unrounded", stop - start, code_of(self.operand.dtype))
        self.operand.read(evaluation.inner(), start, stop, bytes_of(unrounded))
        round_to(unrounded, as_vector(out, self.dtype))

    def as_json(self) -> dict[str, Any]:
        return {"rounded": self.dtype, "operand": self.operand.as_json()}


def rounded_input(operand: Tensor, dtype: str | None) -> Tensor:
    """Return an operand of a merge, rounded to the recipe's dtype.

    An operand is not rounded to float32 or float64, which hold all numbers that methods compute
    with.

    Args:
        operand: a tensor of a model.
        dtype: torch's name; None if the recipe states no dtype.
    """
    if dtype in (None, "float32", "float64"):
        return operand.exact
    return rounded_once(operand, BY_TORCH_NAME[dtype], as_input=True)


def rounded_once(tensor: Tensor, dtype: str, *, as_input: bool = False) -> Tensor:
    """Return a model's tensor rounded to a dtype, without an earlier rounding to another dtype.

    Args:
        tensor: a tensor of a model, which is returned itself if it has the dtype.
        dtype: safetensors' name.
        as_input: whether the tensor is an input of a merge.
    """
    return Rounded.of(tensor if tensor.dtype == dtype else tensor.exact, dtype, as_input=as_input)
