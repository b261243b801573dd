"""Ranks by magnitude within rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from resumerge.methods.kernels.selection import magnitude_bits


def ranks_by_magnitude(values: Tensor, row: int, stride: int = 1) -> np.ndarray:
    """For each element, how many elements of its row are of smaller magnitude.

    Of equal magnitudes, the first has the smaller rank. NaN counts as larger than any number.

    Args:
        values: float32, flat, whole rows.
        row: elements of a row.
        stride: how far apart the elements of a row are; ``row * stride`` elements in a run hold
            `stride` rows.

    Returns:
        int32, of the shape of `values`.
    """
    bits = magnitude_bits(values).reshape(-1, row, stride).swapaxes(1, 2)
    # The index in the lower half makes every key unique, so that any sort is a stable one; and
    # sorting whole numbers is several times faster than finding the order of floats.
    keys = (bits.astype(np.int64) << 32) | np.arange(row)
    keys.sort(axis=-1)
    order = keys & 0xFFFFFFFF
    ranks = torch.empty(order.shape, dtype=torch.int32)
    places = torch.arange(row, dtype=torch.int32).expand(order.shape)
    ranks.scatter_(-1, torch.from_numpy(order), places)
    return ranks.numpy().swapaxes(1, 2).reshape(-1)
