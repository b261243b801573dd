"""Task vectors added to their base: masked, under sign consensus, by votes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kernel_oracles.selection import mask_of_threshold
from kernel_oracles.vectors import added, masked, scaled, tensor_of, tensors_of, write
from resumerge.native import MaskOrThreshold, Vector


def add_task_vectors(
    base: Vector,
    vectors: list[Vector],
    masks: list[MaskOrThreshold],
    factors: list[float],
    divisor_weights: list[float],
    elect_signs: bool,
    normalize: bool,
    scale: float,
    out: Vector,
) -> None:
    sparse = [masked(delta, _mask(delta, kept)) for delta, kept in zip(tensors_of(vectors), masks)]
    terms = scaled(sparse, factors)
    mixed = elected_sum(terms, divisor_weights, normalize) if elect_signs else added(terms)
    write(tensor_of(base) + mixed * scale, out)


def add_majority_mean(
    base: Vector,
    vectors: list[Vector],
    mask: np.ndarray | None,
    weights: list[float],
    out: Vector,
) -> None:
    terms = [masked(delta, mask) for delta in tensors_of(vectors)]
    signs = majority_sign(added(terms))
    kept = [agreeing(term, signs) for term in terms]
    divisor = added(scaled([term.sign() for term in kept], weights))
    mixed = added(scaled(kept, weights))
    write(tensor_of(base) + mixed / divisor.clamp_min(1e-6) * signs, out)


def add_voted_sum(
    base: Vector,
    vectors: list[Vector],
    weights: list[float],
    thresholds: list[float],
    least: int,
    scale: float,
    out: Vector,
) -> None:
    terms = scaled(tensors_of(vectors), weights)
    total = added(terms)
    others = scaled([(total - term).abs() for term in terms], thresholds)
    votes = added([(term.abs() >= other).float() for term, other in zip(terms, others)])
    write(tensor_of(base) + torch.where(votes >= least, total, 0.0) * scale, out)


def elected_sum(terms: list[Tensor], weights: list[float], normalize: bool) -> Tensor:
    """Add the terms whose sign is that of the sum; normalised, divide by the sum of weights."""
    signs = majority_sign(added(terms))
    kept = [agreeing(term, signs) for term in terms]
    mixed = added(kept) * signs
    if not normalize:
        return mixed
    divisor = added(scaled([term.sign() for term in kept], weights))
    return mixed / torch.where(divisor.abs() < 1e-8, divisor + 1.0, divisor)


def majority_sign(total: Tensor) -> Tensor:
    """Return 1 where a sum is zero or positive, else -1 (also for NaN)."""
    return (total >= 0.0).float() * 2.0 - 1.0


def agreeing(term: Tensor, signs: Tensor) -> Tensor:
    """Return the magnitudes of a term where its sign is that of `signs`, else 0, never -0."""
    return (term * signs).clamp_min(0.0) + 0.0


def _mask(delta: Tensor, kept: MaskOrThreshold) -> np.ndarray | None:
    return mask_of_threshold(delta, False, *kept) if isinstance(kept, tuple) else kept
