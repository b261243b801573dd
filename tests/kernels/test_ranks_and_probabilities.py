"""Ranks within rows, and masks with a probability for each rank."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resumerge.methods import Block
from resumerge.methods.kernels import drop_at_random, drop_by_rank, ranks_by_magnitude


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_ranks_equal_two_stable_sorts(rows: int, length: int, stride: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-3, 4, (rows, length, stride))
    order = np.argsort(np.abs(values), axis=1, kind="stable")
    want = np.argsort(order, axis=1, kind="stable")
    flat = torch.from_numpy(values.astype(np.float32).ravel())
    assert ranks_by_magnitude(flat, length, stride).tolist() == want.ravel().tolist()


def test_nan_ranks_highest_and_equal_magnitudes_by_place() -> None:
    values = torch.tensor([1.0, math.nan, -1.0, math.inf, 0.0])
    assert ranks_by_magnitude(values, 5).tolist() == [1, 4, 2, 3, 0]


@pytest.mark.parametrize("probabilities", [[0.2, 0.7], [0.001, 0.999], [1 / 3, 1.0], [0.0, 0.5]])
def test_each_rank_is_kept_as_often_as_its_probability_says(probabilities: list[float]) -> None:
    numel = 1 << 20
    ranks = np.arange(numel, dtype=np.int32) % 2
    chosen = np.array(probabilities)
    kept = drop_by_rank(torch.ones(numel), ranks, chosen, "key", Block(0, 0, numel)).numpy()
    for rank, p in enumerate(probabilities):
        share = kept[rank::2].mean()
        assert abs(share - p) <= 5 * math.sqrt(p * (1 - p) / (numel / 2)) + 1e-9


def test_one_probability_for_all_is_the_mask_of_that_density() -> None:
    block = Block(3, 0, 10_000)
    by_rank = drop_by_rank(
        torch.ones(10_000), np.zeros(10_000, np.int32), np.array([0.3]), "key", block
    )
    assert torch.equal(by_rank, drop_at_random(torch.ones(10_000), 0.3, "key", block))
