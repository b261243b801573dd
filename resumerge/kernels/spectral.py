"""What needs a whole matrix at once: its singular values."""

from __future__ import annotations

import torch
from torch import Tensor


def isotropic(matrix: Tensor) -> Tensor:
    """A float32 matrix with each of its singular values replaced by their mean.

    Directions whose singular value is zero as far as float32 can tell are left out: where they
    point is chance. A matrix with NaN or infinity in it has no singular values, and stays.
    """
    if not matrix.isfinite().all():
        return matrix
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    smallest = values[0] * max(matrix.shape) * torch.finfo(values.dtype).eps
    rank = int((values > smallest).sum())
    return (left[:, :rank] * values.mean()) @ right[:rank]
