"""Order statistics of each element over the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resumerge.kernels.sums import sum_vectors
from resumerge.native import Vector, elements

if TYPE_CHECKING:
    from torch import Tensor


def trimmed_mean(vectors: Sequence[Any], cut: int) -> Any:
    """The mean of each element's values without the `cut` lowest and the `cut` highest.

    NaN where one vector has NaN. The additions turn -0 into 0: processors differ in how they order
    the two. torch's vectors are overwritten.
    """
    if isinstance(vectors[0], Vector):
        return elements.trimmed_mean(vectors, cut)
    count = len(vectors)
    values = [vector.add_(0.0) for vector in vectors]
    middle = sort_elementwise(values)[cut : count - cut] if cut else values
    return sum_vectors(middle).div_(count - 2 * cut)


def sort_elementwise(vectors: Sequence[Tensor]) -> list[Tensor]:
    """Float32 vectors of one length whose elements ascend from the first vector to the last.

    By a network of minima and maxima (odd-even transposition sort), which is several times faster
    than torch's sort for the few models that a merge has. Where one vector has NaN, all have it.
    """
    import torch

    found = [*vectors]
    for turn in range(len(found)):
        for i in range(turn % 2, len(found) - 1, 2):
            low, high = found[i], found[i + 1]
            found[i], found[i + 1] = torch.minimum(low, high), torch.maximum(low, high)
    return found
