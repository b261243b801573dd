"""Oracles of the methods that `oracles` lacks, written from their formulas alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from oracles import Array, _agreeing, _deltas, _rescaled, _summed


def arc(a: Array, b: Array, t: float) -> Array:
    """Interpolate along the arc between two vectors; straight where float32 sees no angle."""
    norms = [max(float(np.linalg.norm(v)), 1e-7) for v in (a, b)]
    cosine = min(1.0, max(-1.0, float(a.ravel() @ b.ravel()) / (norms[0] * norms[1])))
    if np.float32(abs(cosine)) == 1:
        return (1 - t) * a + t * b
    angle = math.acos(cosine)
    return (math.sin((1 - t) * angle) * a + math.sin(t * angle) * b) / math.sin(angle)


def nuslerp(
    models: Sequence[Array],
    weights: Sequence[float],
    flatten: bool = True,
    row_wise: bool = False,
    base: Array | None = None,
) -> Array:
    a, b = _vectors(models, base)
    total = sum(weights)
    t = weights[1] / total if abs(total) >= 1e-6 else 0.5
    if flatten or a.ndim < 2:
        mixed = arc(a, b, t)
    else:
        axis = 0 if row_wise else -1
        rows = np.moveaxis(a, axis, -1), np.moveaxis(b, axis, -1)
        flat = [v.reshape(-1, v.shape[-1]) for v in rows]
        mixed = np.array([arc(x, y, t) for x, y in zip(*flat)]).reshape(rows[0].shape)
        mixed = np.moveaxis(mixed, -1, axis)
    return mixed if base is None else base + mixed


def multislerp(
    models: Sequence[Array],
    weights: Sequence[float],
    normalize: bool = True,
    base: Array | None = None,
    eps: float = 1e-8,
) -> Array:
    if len(models) == 1:
        return models[0].astype(np.float64)
    vectors = _vectors(models, base)
    w = np.array(weights) / (sum(weights) if normalize else 1.0)
    norms = [float(np.linalg.norm(v)) for v in vectors]
    units = [v / (n + eps) for v, n in zip(vectors, norms)]
    mean = sum(x * u for x, u in zip(w, units))
    length = float(np.linalg.norm(mean))
    if length < eps:
        mixed = sum(x * v for x, v in zip(w, vectors))
    else:
        mean = mean / length
        tangent = sum(x * (u - (u.ravel() @ mean.ravel()) * mean) for x, u in zip(w, units))
        step = float(np.linalg.norm(tangent)) + eps
        mixed = mean * math.cos(step) + tangent * math.sin(step) / step
        mixed = mixed * float(w @ norms)
    return mixed if base is None else base + mixed


def karcher(models: Sequence[Array], max_iter: int = 10, tol: float = 1e-5) -> Array:
    if len(models) == 1:
        return models[0].astype(np.float64)
    norms = [float(np.linalg.norm(x.astype(np.float64))) for x in models]
    units = [x.astype(np.float64) / n for x, n in zip(models, norms) if n > tol]
    if not units:
        return np.zeros(models[0].shape)
    u = sum(units) / len(units)
    u = units[0] if np.linalg.norm(u) < tol else u / np.linalg.norm(u)
    for _ in range(max_iter):
        step = np.zeros(u.shape)
        for unit in units:
            cosine = min(1.0, max(-1.0, float(u.ravel() @ unit.ravel())))
            angle = math.acos(cosine)
            if angle >= tol:
                step += angle / math.sin(angle) * (unit - cosine * u) / len(units)
        length = float(np.linalg.norm(step))
        if length < tol:
            break
        u = math.cos(length) * u + math.sin(length) * step / length
        u = u / np.linalg.norm(u)
    return u * sum(norms) / len(models)


def breadcrumbs(
    base: Array,
    models: Sequence[Array],
    weights: Sequence[float],
    densities: Sequence[float],
    gammas: Sequence[float],
    scale: float = 1.0,
    normalize: bool = False,
    rescale: bool = False,
    signs: bool = False,
) -> Array:
    deltas = _deltas(base, models)
    masked = [band(d, density, g) for d, density, g in zip(deltas, densities, gammas)]
    if rescale:
        masked = [_rescaled(d, z) for d, z in zip(deltas, masked)]
    combine = _agreeing if signs else _summed
    return base + scale * combine(masked, weights, normalize)


def band(delta: Array, density: float, gamma: float) -> Array:
    """Drop the largest elements, and keep only the largest of the others."""
    if density >= 1:
        return delta
    kept = int(density * delta.size)
    bottom = max(0, delta.size - kept - int(gamma * delta.size))
    descending = np.argsort(-np.abs(delta), axis=None, kind="stable")
    first = delta.size - bottom - kept
    chosen = descending[first : first + kept]
    result = np.zeros(delta.size)
    result[chosen] = delta.ravel()[chosen]
    return result.reshape(delta.shape)


def sce(base: Array, models: Sequence[Array], topk: float = 1.0) -> Array:
    deltas = np.stack(_deltas(base, models))
    if topk < 1:
        variance = deltas.var(axis=0)
        kept = np.argsort(-variance, axis=None, kind="stable")[: int(topk * (variance != 0).sum())]
        mask = np.zeros(variance.size)
        mask[kept] = 1
        deltas = deltas * mask.reshape(variance.shape)
    energy = [float((d**2).mean()) for d in deltas]
    total = sum(energy)
    w = [e / total if total >= 1e-6 else 1 / len(deltas) for e in energy]
    majority = np.where(deltas.sum(axis=0) >= 0, 1.0, -1.0)
    takes_part = [(np.sign(d) == majority) * x for d, x in zip(deltas, w)]
    mixed = sum(a * d for a, d in zip(takes_part, deltas))
    return base + mixed / np.maximum(sum(takes_part), 1e-6)


def model_stock(base: Array, models: Sequence[Array], filter_wise: bool = False) -> Array:
    if filter_wise and base.ndim > 1:
        flat = [x.reshape(-1, x.shape[-1]) for x in (base, *models)]
        rows = [model_stock(row[0], row[1:]) for row in zip(*flat)]
        return np.array(rows).reshape(base.shape)
    deltas = _deltas(base, models)
    cosines = []
    for a, b in combinations(deltas, 2):
        norms = max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-6)
        cosines.append(min(1.0, max(-1.0, float(a.ravel() @ b.ravel()) / norms)))
    c, n = sum(cosines) / len(cosines), len(models)
    t = n * c / (1 + (n - 1) * c)
    return t * sum(x.astype(np.float64) for x in models) / n + (1 - t) * base


def nearswap(base: Array, other: Array, t: float) -> Array:
    d = (base - other).astype(np.float64)
    w = np.clip(np.divide(t, np.abs(d), out=np.ones(d.shape), where=d != 0), 0, 1)
    return w * other + (1 - w) * base


def ram(base: Array, models: Sequence[Array], epsilon: float = 1e-5) -> Array:
    deltas, changed, count = _changes(base, models, epsilon)
    return base + sum(d * a for d, a in zip(deltas, changed)) / np.maximum(count, 1)


def ramplus(
    base: Array,
    models: Sequence[Array],
    r: float = 0.1,
    alpha: float = 0.2,
    epsilon: float = 1e-5,
) -> Array:
    deltas, changed, count = _changes(base, models, epsilon)
    total = np.zeros(base.shape)
    for d, a in zip(deltas, changed):
        unique = int((a & (count == 1)).sum())
        ratio = int((a & (count >= 2)).sum()) / unique if unique else 0.0
        factor = 1 + r * min(max(ratio, 0.0), alpha)
        total += d * a / np.maximum(count, 1) * np.where(count == 1, factor, 1.0)
    return base + total


def _changes(
    base: Array, models: Sequence[Array], epsilon: float
) -> tuple[list[Array], list[Array], Array]:
    deltas = _deltas(base, models)
    changed = [np.abs(d) > np.float32(epsilon) for d in deltas]
    return deltas, changed, np.sum(changed, axis=0)


def arcee_fusion(base: Array, other: Array) -> Array:
    p, q = (_softmax(x.astype(np.float64)) + 1e-8 for x in (other, base))
    divergence = (p * np.log(p / q)).sum(axis=-1, keepdims=True)
    [delta] = _deltas(base, [other])
    importance = np.abs(delta) * divergence
    ordered = np.sort(importance, axis=None)
    low, median, high = (ordered[q * (ordered.size - 1) // 4] for q in (1, 2, 3))
    return base + np.where(importance >= median + 1.5 * (high - low), delta, 0.0)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _vectors(models: Sequence[Array], base: Array | None) -> list[Array]:
    if base is None:
        return [x.astype(np.float64) for x in models]
    return _deltas(base, models)


def trimmed_mean(models: Sequence[Array], trim: float) -> Array:
    n = len(models)
    cut = min(int(trim * n), (n - 1) // 2)
    return np.sort(np.stack(models).astype(np.float64), axis=0)[cut : n - cut].mean(axis=0)


def consensus_ta(
    base: Array,
    models: Sequence[Array],
    weights: Sequence[float],
    thresholds: Sequence[float],
    agree: int = 2,
    scale: float = 1.0,
) -> Array:
    terms = [w * d for w, d in zip(weights, _deltas(base, models))]
    total = sum(terms)
    votes = sum((np.abs(y) >= h * np.abs(total - y)) * 1 for y, h in zip(terms, thresholds))
    return base + scale * np.where(votes >= min(agree, len(terms)), total, 0.0)


def iso_c(base: Array, models: Sequence[Array], weights: Sequence[float]) -> Array:
    total = sum(w * d for w, d in zip(weights, _deltas(base, models)))
    if base.ndim != 2:
        return base + total / len(models)
    left, values, right = np.linalg.svd(total, full_matrices=False)
    return base + values.mean() * (left @ right)
