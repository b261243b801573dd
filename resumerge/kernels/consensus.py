"""Sign consensus, as in TIES (https://arxiv.org/abs/2306.01708, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resumerge.kernels.accumulate import plain_sum

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_DIVISOR = 1e-8
"""Sums of weights below this do not divide."""


def majority(total: Tensor) -> Tensor:
    """1 where a sum is zero or positive, else -1 (NaN too), in place.

    Comparisons are written to float vectors: to booleans, torch's are four times slower.
    """
    import torch

    return torch.ge(total, 0.0, out=total).mul_(2.0).sub_(1.0)


def agreeing(term: Tensor, signs: Tensor) -> Tensor:
    """The magnitudes of a term where its sign is that of `signs`, else 0; in place.

    The addition turns -0 into 0, which processors choose between differently.
    """
    return term.mul_(signs).clamp_min_(0.0).add_(0.0)


def agreeing_sum(terms: Sequence[Tensor], weights: Sequence[float], normalize: bool) -> Tensor:
    """Sum, for each element, the terms whose sign is that of the sum of all terms.

    A sum of zero counts as positive. Terms that are zero take part in nothing.

    Args:
        terms: float32 vectors of one length, weighted task vectors; they are used up.
        weights: of each term.
        normalize: divide by the sum of the weights of the terms that took part.
    """
    signs = majority(plain_sum([terms[0].clone(), *terms[1:]]))
    kept = [agreeing(term, signs) for term in terms]
    divisor = _taking_part(kept, weights) if normalize else None
    mixed = plain_sum(kept).mul_(signs)
    return mixed if divisor is None else mixed.div_(divisor)


def _taking_part(kept: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The sum of the weights of the terms that are not 0; where it would not divide, another."""
    import torch

    divisor = kept[0].sign().mul_(weights[0])
    sign = torch.empty_like(divisor)
    for term, weight in zip(kept[1:], weights[1:]):
        divisor.add_(torch.sign(term, out=sign), alpha=weight)
    if min(weights) >= SMALLEST_DIVISOR:  # then it is small only where the sum of terms is 0 too
        return divisor.clamp_min_(SMALLEST_DIVISOR)
    torch.abs(divisor, out=sign)
    return divisor.add_(torch.lt(sign, SMALLEST_DIVISOR, out=sign))
