"""Dot products, variances, sums and masks of a block."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from resumerge.kernels.masks.apply import zero_small
from resumerge.kernels.sorting import sort_elementwise

from resumerge.kernels import (
    apply_mask,
    column_gram,
    gram,
    isotropic,
    l1_norm,
    row_gram,
    variance,
    weighted_sum,
)


@given(st.integers(1, 4), st.integers(0, 300), st.integers(0, 2**32 - 1))
def test_gram_is_the_matrix_of_dot_products(count: int, length: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).standard_normal((count, length)).astype(np.float32)
    wide = vectors.astype(np.float64)
    found = gram([torch.from_numpy(v) for v in vectors])
    np.testing.assert_allclose(found, wide @ wide.T, rtol=1e-12, atol=1e-12)


def test_gram_of_more_than_a_chunk() -> None:
    a, b = torch.randn(2, 300_001, generator=torch.Generator().manual_seed(0))
    wide = torch.stack([a, b]).double()
    np.testing.assert_allclose(gram([a, b]), wide @ wide.T, rtol=1e-12)


@given(st.integers(1, 9), st.sampled_from([1, 2, 33, 1024, 1500]), st.integers(0, 2**32 - 1))
def test_grams_of_rows_and_columns(rows: int, row: int, seed: int) -> None:
    matrices = np.random.default_rng(seed).standard_normal((2, rows, row)).astype(np.float32)
    a, b = (torch.from_numpy(matrix).flatten() for matrix in matrices)
    products = [[x.astype(np.float64) * y for y in matrices] for x in matrices]
    for found, axis in ((row_gram([a, b], row), 1), (column_gram([a, b], row), 0)):
        expected = [[x.sum(axis=axis) for x in line] for line in products]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 100_000])
def test_absolute_sum(length: int) -> None:
    values = torch.randn(length, generator=torch.Generator().manual_seed(0))
    assert l1_norm(values) == pytest.approx(float(values.double().abs().sum()), rel=1e-6)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_variance(count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).standard_normal((count, 20)).astype(np.float32)
    found = variance([torch.from_numpy(v) for v in vectors]).numpy()
    np.testing.assert_allclose(found, vectors.astype(np.float64).var(axis=0), 1e-5, 1e-7)


def test_variance_of_equal_vectors_is_exactly_zero() -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for count in range(1, 8):
        assert not variance([vector] * count).any()


@pytest.mark.parametrize("length", [1, 7, 8, 31, 100])
def test_keep_above_keeps_nan_wherever_it_stands(length: int) -> None:
    values = torch.full((length,), math.nan)
    assert zero_small(values, 0.5).isnan().all()


def test_keep_above_drops_what_is_equal() -> None:
    edge = 0.1
    just_above = float(np.nextafter(np.float32(edge), np.float32(1)))
    values = torch.tensor([edge, -edge, just_above, -just_above, 0.0])
    assert zero_small(values, float(np.float32(edge))).tolist() == [0, 0, *values[2:4].tolist(), 0]


def test_keep_only_drops_what_is_no_number() -> None:
    values = torch.tensor([math.nan, math.inf, 2.0, math.nan])
    kept = apply_mask(values, np.array([False, False, True, True]))
    assert kept[:3].tolist() == [0, 0, 2]
    assert math.isnan(kept[3])


def test_weighted_sum_is_computed_in_the_first_vector() -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    assert weighted_sum([a, b], [2.0, 0.5]) is a
    assert a.tolist() == [7.0, 14.0]


@given(st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_sort_over_sorts_each_element(count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).integers(-4, 5, (count, 30)).astype(np.float32)
    found = sort_elementwise([torch.from_numpy(v) for v in vectors])
    np.testing.assert_array_equal(torch.stack(found).numpy(), np.sort(vectors, axis=0))


def test_an_isotropic_matrix_has_equal_singular_values_and_the_same_directions() -> None:
    matrix = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    found = isotropic(matrix)
    assert torch.allclose(torch.linalg.svdvals(found), values.mean().expand(8), rtol=1e-5)
    assert torch.allclose(found, left @ right * values.mean(), atol=1e-5)


def test_directions_without_a_singular_value_are_left_out() -> None:
    column, row = torch.randn(2, 9, generator=torch.Generator().manual_seed(0))
    matrix = torch.outer(column, row)
    assert torch.allclose(isotropic(matrix), matrix / 9, atol=1e-5)
    assert not isotropic(torch.zeros(3, 4)).any()
