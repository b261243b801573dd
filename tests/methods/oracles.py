"""Oracles of linear, SLERP, task arithmetic, TIES and DARE, over whole tensors in float64.

The streaming methods must give the same numbers. `more_oracles` has the other methods.

Written from the formulas as mergekit 0.1.5 was observed to apply them, with none of the program's
code. Task vectors are differences in float32, as in mergekit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def linear(models: Sequence[Array], weights: Sequence[float], normalize: bool = True) -> Array:
    """Return sum(w x) / sum(w), or sum(w x)."""
    total = sum(w * x.astype(np.float64) for w, x in zip(weights, models))
    return total / sum(weights) if normalize else total


def slerp(base: Array, other: Array, t: float) -> Array:
    """Interpolate along the arc between two vectors; straight where they are nearly parallel."""
    a, b = base.astype(np.float64), other.astype(np.float64)
    norms = [norm if norm > 1e-8 else 1.0 for norm in (np.linalg.norm(a), np.linalg.norm(b))]
    cosine = float(a.ravel() @ b.ravel()) / (norms[0] * norms[1])
    if not abs(cosine) <= 0.9995:
        return (1 - t) * a + t * b
    angle = math.acos(cosine)
    return (math.sin((1 - t) * angle) * a + math.sin(t * angle) * b) / math.sin(angle)


def task_arithmetic(
    base: Array,
    models: Sequence[Array],
    weights: Sequence[float],
    scale: float = 1.0,
    normalize: bool = False,
) -> Array:
    """Return base + scale * sum(w d), d = x - base."""
    return base + scale * _summed(_deltas(base, models), weights, normalize)


def ties(
    base: Array,
    models: Sequence[Array],
    weights: Sequence[float],
    densities: Sequence[float],
    scale: float = 1.0,
    normalize: bool = True,
    rescale: bool = False,
) -> Array:
    """Trim task vectors to their largest elements, then sum them where they agree in sign."""
    deltas = _deltas(base, models)
    trimmed = [largest(d, density) for d, density in zip(deltas, densities)]
    if rescale:
        trimmed = [_rescaled(d, z) for d, z in zip(deltas, trimmed)]
    return base + scale * _agreeing(trimmed, weights, normalize)


def dare_linear(
    base: Array,
    models: Sequence[Array],
    weights: Sequence[float],
    masks: Sequence[Array],
    scale: float = 1.0,
    normalize: bool = False,
    rescale: bool = True,
) -> Array:
    """Multiply task vectors by masks, restore their L1 norms, then sum them."""
    return base + scale * _summed(_dropped(base, models, masks, rescale), weights, normalize)


def dare_ties(
    base: Array,
    models: Sequence[Array],
    weights: Sequence[float],
    masks: Sequence[Array],
    scale: float = 1.0,
    normalize: bool = False,
    rescale: bool = True,
) -> Array:
    """Multiply task vectors by masks, restore their L1 norms, then sum where they agree in sign."""
    return base + scale * _agreeing(_dropped(base, models, masks, rescale), weights, normalize)


def passthrough(model: Array, scale: float = 1.0) -> Array:
    """Return scale * x."""
    return scale * model.astype(np.float64)


def largest(delta: Array, density: float) -> Array:
    """Set all but the int(density * n) largest magnitudes to 0; a positive density keeps one.

    Where magnitudes are equal, the first ones are kept: mergekit leaves open which.
    """
    if density >= 1:
        return delta
    count = max(1, int(density * delta.size)) if density > 0 else 0
    kept = np.argsort(-np.abs(delta), kind="stable")[:count]
    trimmed = np.zeros_like(delta)
    trimmed[kept] = delta[kept]
    return trimmed


def _deltas(base: Array, models: Sequence[Array]) -> list[Array]:
    return [(x - base).astype(np.float64) for x in models]


def _dropped(
    base: Array, models: Sequence[Array], masks: Sequence[Array], rescale: bool
) -> list[Array]:
    deltas = _deltas(base, models)
    dropped = [d * mask for d, mask in zip(deltas, masks)]
    return [_rescaled(d, z) if rescale else z for d, z in zip(deltas, dropped)]


def _rescaled(before: Array, after: Array) -> Array:
    norm = np.abs(after).sum()
    return after * (np.abs(before).sum() / norm) if norm >= 1e-7 else after


def _summed(deltas: Sequence[Array], weights: Sequence[float], normalize: bool) -> Array:
    divisor = sum(weights) if normalize and abs(sum(weights)) >= 1e-8 else 1.0
    return sum(w * d for w, d in zip(weights, deltas)) / divisor


def _agreeing(deltas: Sequence[Array], weights: Sequence[float], normalize: bool) -> Array:
    terms = [w * d for w, d in zip(weights, deltas)]
    majority = np.where(sum(terms) >= 0, 1.0, -1.0)
    agrees = [np.sign(term) == majority for term in terms]
    mixed = sum(term * a for term, a in zip(terms, agrees))
    divisor = sum(w * a for w, a in zip(weights, agrees)) if normalize else 1.0
    return mixed / np.where(divisor == 0, 1.0, divisor)
