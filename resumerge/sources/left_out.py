"""The record of a tensor of a model that is not used, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor


@dataclass(frozen=True)
class LeftOut:
    """A tensor that is not used for one result; another result may use it.

    Args:
        tensor: the tensor of a model, or of a result that is computed from several models.
        reason: the reason why the result does not use it.
    """

    tensor: Tensor
    reason: UnusedReason
