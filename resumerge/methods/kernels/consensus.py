"""Sign consensus, as in TIES (https://arxiv.org/abs/2306.01708, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST_DIVISOR = 1e-8
"""Sums of weights below this do not divide."""


def plain_sum(terms: Sequence[Tensor]) -> Tensor:
    """The sum of float32 vectors, in the first of them."""
    total = terms[0]
    for term in terms[1:]:
        total.add_(term)
    return total


def majority(total: Tensor) -> Tensor:
    """1 where a sum is zero or positive, else -1 (NaN too), in place.

    Comparisons are written to float vectors: to booleans, torch's are four times slower.
    """
    return torch.ge(total, 0.0, out=total).mul_(2.0).sub_(1.0)


def agreeing(term: Tensor, signs: Tensor) -> Tensor:
    """The magnitudes of a term where its sign is that of `signs`, else 0; in place."""
    return term.mul_(signs).clamp_min_(0.0)


def agreeing_sum(terms: Sequence[Tensor], weights: Sequence[float], normalize: bool) -> Tensor:
    """Sum, for each element, the terms whose sign is that of the sum of all terms.

    A sum of zero counts as positive. Terms that are zero take part in nothing.

    Args:
        terms: float32 vectors of one length, weighted task vectors; they are used up.
        weights: of each term.
        normalize: divide by the sum of the weights of the terms that took part.
    """
    signs = majority(plain_sum([terms[0].clone(), *terms[1:]]))
    mixed = torch.zeros_like(signs)
    divisor = torch.zeros_like(signs) if normalize else None
    for term, weight in zip(terms, weights):
        kept = agreeing(term, signs)
        mixed.add_(kept)
        if divisor is not None:
            divisor.add_(kept.sign_(), alpha=weight)
    mixed.mul_(signs)
    if divisor is not None:
        size = divisor.abs()
        mixed.div_(divisor.add_(torch.lt(size, SMALLEST_DIVISOR, out=size)))
    return mixed
