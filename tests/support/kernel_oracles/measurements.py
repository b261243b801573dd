"""Measurements of the numbers of a block: counts, and sums in the order of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernel_oracles.vectors import tensor_of, write
from resumerge.native import F32, KINDS, Vector
from resumerge.native._kernels import F8_E4M3, F64

PART, LANES = 512, 16


@np.errstate(all="ignore")
def measure(
    reference: Vector,
    vectors: Sequence[Vector],
    out: Vector,
    sums: np.ndarray,
    written: np.ndarray | None = None,
) -> None:
    exact, done = np.asarray(out.exact), 0
    pairs = None if written is None else written.reshape(2, -1)
    for row, start in zip(sums, range(0, len(out), out.block)):
        block = slice(start, min(start + out.block, len(out)))
        measured = min(out.measured, block.stop - block.start)
        first = slice(start, start + measured)
        x = exact[done : done + measured].copy()
        both = None if pairs is None else pairs[:, done : done + measured]
        done += measured
        row[:] = [
            *_of_block(_part(reference, block), [_part(v, block) for v in vectors], out, block),
            *([0.0] * 5 * len(vectors)),
        ]
        parts = [_part(v, first) for v in vectors]
        _measure(_part(reference, first), parts, x, _part(out, first), both, row)
        for k, vector in enumerate(vectors):
            own = row[11 + 5 * k : 16 + 5 * k]
            own[3] = _are_equal(_part(vector, block), _part(reference, block))
            bad = _not_finite(out, block) & ~np.isfinite(_floats(_part(vector, block)))
            own[4] = bad.sum()


def _of_block(reference: Vector, vectors: list[Vector], out: Vector, block: slice) -> list[float]:
    y, result = _floats(_part(out, block)), _part(out, block)
    most = 448.0 if out.dtype == F8_E4M3 else np.inf
    bad = _not_finite(out, block)
    fits = np.all([np.abs(_floats(v)) < most for v in (reference, *vectors)], axis=0)
    unchanged = _are_equal(result, reference)
    numbers = [unchanged, np.isnan(y).sum(), np.isinf(y).sum(), (bad & ~np.isnan(y) & fits).sum()]
    return [0.0] * 6 + [*map(float, numbers), float((bad & ~np.isfinite(_floats(reference))).sum())]


def _measure(
    reference: Vector,
    vectors: list[Vector],
    exact: np.ndarray,
    result: Vector,
    written: np.ndarray | None,
    row: np.ndarray,
) -> None:
    row[0] = len(exact)
    b, r, c = _floats(reference), _floats(result), _floats(_rounded(reference, result.dtype))
    y = r
    if written is not None:
        y, c = written
    lanes = [np.zeros(LANES) for _ in range(2 + 2 * len(vectors))]
    for start in range(0, len(exact), PART):
        some = slice(start, start + PART)
        x = exact[some].copy()
        again = Vector(np.zeros(len(x), KINDS[result.dtype]), result.dtype)
        write(torch.from_numpy(x), again)
        if result.dtype == F32:
            x = r[some]
        else:
            same = _floats(again).view(np.uint32) == r[some].view(np.uint32)
            x = np.where(same, x, r[some])
        e, g = x - b[some], y[some] - c[some]
        moved, changed = x != b[some], y[some] != c[some]
        row[3] += moved.sum()
        row[4] += (moved & ~changed).sum()
        wide_e, wide_g = _wide(x) - _wide(b[some]), _wide(y[some]) - _wide(c[some])
        _add(lanes[:2], [(e, e), (g, g)], [moved.sum(), changed.sum()],
             [wide_e * wide_e, wide_g * wide_g])  # fmt: skip
        signs = []
        for k, vector in enumerate(vectors):
            z = _floats(vector)[some]
            d, wide = z - b[some], _wide(z) - _wide(b[some])
            differs = (z != b[some]).sum()
            row[13 + 5 * k] += differs
            _add(lanes[2 + 2 * k : 4 + 2 * k], [(d, d), (d, g)], [differs, None],
                 [wide * wide, wide * _wide(g)])  # fmt: skip
            signs.append((d > 0, d < 0))
        if len(signs) > 1:
            up, down = (np.any(some, axis=0) for some in zip(*signs))
            row[5] += (up & down).sum()
    row[1:3] = [_in_order(own) for own in lanes[:2]]
    for k in range(len(vectors)):
        row[11 + 5 * k : 13 + 5 * k] = [_in_order(own) for own in lanes[2 + 2 * k : 4 + 2 * k]]


def _add(lanes: list[np.ndarray], pairs: Any, counts: list[Any], wide: list[np.ndarray]) -> None:
    """Add the sums of a part, in float32 if that loses nothing, else those of finite products."""
    sums = [_lanes(a * b) for a, b in pairs]
    if all(_fits(total, count) for total, count in zip(sums, counts)):
        for own, total in zip(lanes, sums):
            own += total
        return
    for own, products in zip(lanes, wide):
        finite = np.where(np.isfinite(products), products, 0.0)
        own[0] = np.cumsum(np.concatenate((own[:1], finite)))[-1]


def _fits(sums: np.ndarray, count: int | None) -> bool:
    total = np.cumsum(np.concatenate((np.zeros(1, np.float32), sums)), dtype=np.float32)[-1]
    if count is None:
        return bool(np.isfinite(total))
    least, most = np.float32(1e-25), np.float32(1e37)
    return bool(least <= total <= most) if count else bool(total == 0)


def _lanes(products: np.ndarray) -> np.ndarray:
    padded = np.zeros(PART, np.float32)
    padded[: len(products)] = products
    found: np.ndarray = np.cumsum(padded.reshape(-1, LANES), axis=0, dtype=np.float32)[-1] + 0.0
    return found


def _in_order(lanes: np.ndarray) -> float:
    return float(np.cumsum(np.concatenate((np.zeros(1), lanes)))[-1])


def _are_equal(vector: Vector, reference: Vector) -> bool:
    if vector.dtype == reference.dtype:
        return bool(vector.data.tobytes() == reference.data.tobytes())
    x, b = _floats(vector), _floats(_rounded(reference, vector.dtype))
    return bool(np.array_equal(x, b, equal_nan=True))


def _rounded(vector: Vector, dtype: int) -> Vector:
    if dtype in (vector.dtype, F32, F64):
        return vector
    found = Vector(np.zeros(len(vector), KINDS[dtype]), dtype)
    write(tensor_of(vector), found)
    return found


def _not_finite(out: Vector, block: slice) -> np.ndarray:
    y = _floats(_part(out, block))
    found: np.ndarray = ~np.isfinite(y)
    return found | (np.abs(y) >= 448.0) if out.dtype == F8_E4M3 else found


def _part(vector: Vector, part: slice) -> Vector:
    return Vector(vector.data[part], vector.dtype)


def _floats(vector: Vector) -> np.ndarray:
    found: np.ndarray = tensor_of(vector).numpy()
    return found


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)
