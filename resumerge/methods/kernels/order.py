"""Order over models: each element's values sorted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def sort_over(vectors: Sequence[Tensor]) -> list[Tensor]:
    """Float32 vectors of one length whose elements ascend from the first vector to the last.

    By a network of minima and maxima (odd-even transposition sort), which is several times faster
    than torch's sort for the few models that a merge has. Where one vector has NaN, so have those
    that it was compared with.
    """
    found = [*vectors]
    for turn in range(len(found)):
        for i in range(turn % 2, len(found) - 1, 2):
            low, high = found[i], found[i + 1]
            found[i], found[i + 1] = torch.minimum(low, high), torch.maximum(low, high)
    return found
