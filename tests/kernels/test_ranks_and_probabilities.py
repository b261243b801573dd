"""Masks with a probability for each rank within a row."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_masks import dense_mask

from resumerge.kernels import BlockRun, rank_mask
from resumerge.native import Vector

REACHES = st.sampled_from([0.0, 0.1, 0.29, -0.2])


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4), REACHES, st.integers(0, 2**32 - 1))
def test_the_mask_of_small_rows_is_that_of_every_rank(
    rows: int, length: int, stride: int, reach: float, seed: int
) -> None:
    values = np.random.default_rng(seed).integers(-3, 4, (rows, length, stride))
    run = BlockRun(seed % 7, values.size, values.size)
    flat = Vector(values.astype(np.float32).ravel())
    found = rank_mask(flat, length, 0.6, reach, f"{seed}", run, stride)
    want = dense_mask(values, 0.6, reach, f"{seed}", run)
    assert found.astype(bool).tolist() == want.ravel().tolist()


@pytest.mark.parametrize("distinct", [3, 100_000])
@pytest.mark.parametrize("reach", [0.15, -0.15])
def test_the_mask_of_long_rows_is_that_of_every_rank(distinct: int, reach: float) -> None:
    values = np.random.default_rng(0).integers(-distinct, distinct, (20, 700, 1))
    run = BlockRun(3, values.size, values.size)
    flat = Vector(values.astype(np.float32).ravel())
    found = rank_mask(flat, 700, 0.5, reach, "key", run)
    want = dense_mask(values, 0.5, reach, "key", run)
    assert found.astype(bool).tolist() == want.ravel().tolist()


def test_nan_ranks_highest() -> None:
    values = np.random.default_rng(0).standard_normal((200, 50, 1)).astype(np.float32)
    infinite = values.copy()
    values[:, 7], infinite[:, 7] = math.nan, math.inf
    run = BlockRun(0, values.size, values.size)
    nan, inf = (rank_mask(Vector(v.ravel()), 50, 0.5, 0.4, "key", run) for v in (values, infinite))
    assert nan.tolist() == inf.tolist()
    assert nan.reshape(200, 50)[:, 7].mean() > 0.8


@pytest.mark.parametrize("density, reach", [(0.5, 0.15), (0.2, 0.19), (0.9, -0.09), (1 / 3, 0.0)])
def test_each_rank_is_kept_as_often_as_its_probability_says(density: float, reach: float) -> None:
    length, rows = 8, 1 << 17
    values = Vector(np.tile(np.arange(1.0, length + 1, dtype=np.float32), rows))
    run = BlockRun(0, len(values), len(values))
    kept = rank_mask(values, length, density, reach, "key", run).reshape(rows, length)
    for rank, share in enumerate(kept.mean(axis=0)):
        p = density - reach + 2 * reach * rank / (length - 1)
        assert abs(share - p) <= 5 * math.sqrt(p * (1 - p) / rows)


@pytest.mark.parametrize("length", [64, 1024])
def test_equal_magnitudes_are_kept_as_often_as_the_density_says(length: int) -> None:
    numel = 1 << 20
    kept = rank_mask(
        Vector(np.ones(numel, np.float32)), length, 0.4, 0.3, "key", BlockRun(0, numel, numel)
    )
    assert abs(kept.mean() - 0.4) <= 5 * math.sqrt(0.24 / numel)
