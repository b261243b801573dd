"""Changes of the singular values of a whole matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def isotropic(matrix: Tensor) -> Tensor:
    """Return a float32 matrix with each of its singular values replaced by their mean.

    Singular vectors are left out if their singular value is zero within float32's precision,
    because their direction is arbitrary. A matrix with NaN or infinity is returned unchanged. The
    method is Iso-C, https://arxiv.org/abs/2502.04959.
    """
    import torch

    if not matrix.isfinite().all():
        return matrix
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    threshold = values[0] * max(matrix.shape) * torch.finfo(values.dtype).eps
    rank = int((values > threshold).sum())
    isotropic_matrix: Tensor = (left[:, :rank] * values.mean()) @ right[:rank]
    return isotropic_matrix
