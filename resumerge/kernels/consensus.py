"""Sign consensus, as in TIES (https://arxiv.org/abs/2306.01708, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resumerge.kernels.sums import sum_vectors

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_DIVISOR = 1e-8
"""The divisor where a sum of weights is smaller."""


def majority_sign(total: Tensor) -> Tensor:
    """1 where a sum is zero or positive, else -1 (NaN too), in place.

    Comparisons are written to float vectors: to booleans, torch's are four times slower.
    """
    import torch

    return torch.ge(total, 0.0, out=total).mul_(2.0).sub_(1.0)


def keep_agreeing(term: Tensor, signs: Tensor) -> Tensor:
    """The magnitudes of a term where its sign is that of `signs`, else 0; in place.

    The addition turns -0 into 0: processors differ in which of them they return.
    """
    return term.mul_(signs).clamp_min_(0.0).add_(0.0)


def sign_consensus_sum(
    terms: Sequence[Tensor], weights: Sequence[float], normalize: bool
) -> Tensor:
    """Sum, for each element, the terms whose sign is that of the sum of all terms.

    A sum of zero counts as positive. Terms that are zero have no sign, and take no part.

    Args:
        terms: float32 vectors of one length, weighted task vectors; they are overwritten.
        weights: of each term.
        normalize: divide by the sum of the weights of the terms that took part.
    """
    signs = majority_sign(sum_vectors([terms[0].clone(), *terms[1:]]))
    kept = [keep_agreeing(term, signs) for term in terms]
    divisor = _taking_part(kept, weights) if normalize else None
    mixed: Tensor = sum_vectors(kept).mul_(signs)
    return mixed if divisor is None else mixed.div_(divisor)


def _taking_part(kept: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The sum of the weights of the terms that are not 0, kept away from 0."""
    import torch

    divisor = kept[0].sign().mul_(weights[0])
    sign = torch.empty_like(divisor)
    for term, weight in zip(kept[1:], weights[1:]):
        divisor.add_(torch.sign(term, out=sign), alpha=weight)
    if min(weights) >= SMALLEST_DIVISOR:  # it is small only where the sum of terms is 0
        return divisor.clamp_min_(SMALLEST_DIVISOR)
    torch.abs(divisor, out=sign)
    return divisor.add_(torch.lt(sign, SMALLEST_DIVISOR, out=sign))
