"""A tensor of a model that is not used, recorded where that is decided."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor


@dataclass(frozen=True)
class LeftOut:
    """A tensor that is not used for one result, though it may be used for another.

    Args:
        tensor: the tensor of a model, or of a result that is computed from several.
        reason: why it is not used.
    """

    tensor: Tensor
    reason: UnusedReason
