"""Dot products, variances, sums and means of vectors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resumerge.kernels import (
    BlockRun,
    column_gram,
    count_changes,
    count_conflicts,
    gram,
    l1_norms,
    new_vector,
    row_gram,
    trimmed_mean,
    variance,
)
from resumerge.kernels.linalg.spectral import isotropic
from resumerge.native import Vector


def vectors(arrays: np.ndarray) -> list[Vector]:
    """Return each row of an array as a vector."""
    return [Vector(np.ascontiguousarray(row, np.float32)) for row in arrays]


def whole(length: int) -> BlockRun:
    return BlockRun(0, max(1, length), length)


@given(st.integers(1, 4), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_gram_is_the_matrix_of_dot_products(count: int, length: int, seed: int) -> None:
    some = np.random.default_rng(seed).standard_normal((count, length)).astype(np.float32)
    wide = some.astype(np.float64)
    [found] = gram(vectors(some), whole(length))
    np.testing.assert_allclose(found, wide @ wide.T, rtol=1e-12, atol=1e-12)


def test_gram_of_more_than_a_chunk() -> None:
    some = np.random.default_rng(0).standard_normal((2, 300_001)).astype(np.float32)
    wide = some.astype(np.float64)
    [found] = gram(vectors(some), whole(300_001))
    np.testing.assert_allclose(found, wide @ wide.T, rtol=1e-12)


@given(st.integers(1, 9), st.sampled_from([1, 2, 33, 1024, 1500]), st.integers(0, 2**32 - 1))
def test_grams_of_rows_and_columns(rows: int, row: int, seed: int) -> None:
    matrices = np.random.default_rng(seed).standard_normal((2, rows, row)).astype(np.float32)
    some = vectors(matrices.reshape(2, -1))
    products = [[x.astype(np.float64) * y for y in matrices] for x in matrices]
    by_column = column_gram(some, row, whole(rows * row))[0]
    for found, axis in ((row_gram(some, row), 1), (by_column, 0)):
        expected = [[x.sum(axis=axis) for x in line] for line in products]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100_000])
def test_absolute_sum(length: int) -> None:
    values = np.random.default_rng(0).standard_normal(length).astype(np.float32)
    mask = np.arange(length, dtype=np.uint8) % 2
    [(every, kept)] = l1_norms(Vector(values), mask, whole(length)).tolist()
    wide = np.abs(values.astype(np.float64))
    assert every == pytest.approx(wide.sum(), rel=1e-12)
    assert kept == pytest.approx((wide * mask).sum(), rel=1e-12)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_variance(count: int, seed: int) -> None:
    some = np.random.default_rng(seed).standard_normal((count, 20)).astype(np.float32)
    found = variance(vectors(some)).data
    np.testing.assert_allclose(found, some.astype(np.float64).var(axis=0), 1e-5, 1e-7)


def test_variance_of_equal_vectors_is_exactly_zero() -> None:
    vector = Vector(np.random.default_rng(0).standard_normal(1000).astype(np.float32))
    for count in range(1, 8):
        assert not variance([vector] * count).data.any()


@pytest.mark.parametrize("length", [1, 7, 8, 31, 100])
def test_a_change_that_is_no_number_is_none_wherever_it_stands(length: int) -> None:
    values = Vector(np.full(length, math.nan, np.float32))
    assert count_changes([values], 0.5, whole(length)).tolist() == [[[0, 0]]]


def test_a_change_as_large_as_epsilon_is_none() -> None:
    edge = np.float32(0.1)
    just_above = np.nextafter(edge, np.float32(1))
    values = np.array([edge, -edge, just_above, -just_above, 0.0], np.float32)
    assert count_changes([Vector(values)], float(edge), whole(5)).tolist() == [[[2, 2]]]


@given(st.integers(1, 5), st.integers(0, 3000), st.integers(0, 2**32 - 1))
def test_conflicts_of_signs(count: int, length: int, seed: int) -> None:
    some = np.random.default_rng(seed).integers(-1, 2, (count, length)).astype(np.float32)
    found = count_conflicts(vectors(some))
    for i, one in enumerate(some):
        for j, other in enumerate(some):
            both, opposed = np.count_nonzero(one * other), np.count_nonzero(one * other < 0)
            assert found[i, j].tolist() == ([both, opposed] if i != j else [0, 0])


@given(st.integers(1, 7), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_a_trimmed_mean_is_that_of_the_middle(count: int, cut: int, seed: int) -> None:
    some = np.random.default_rng(seed).integers(-4, 5, (count, 30)).astype(np.float32)
    cut, out = min(cut, (count - 1) // 2), new_vector(30)
    trimmed_mean(vectors(some), cut, out)
    middle = np.sort(some, axis=0)[cut : count - cut]
    np.testing.assert_allclose(out.data, middle.mean(axis=0), rtol=1e-6)


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
