"""Matrices of low rank lose nothing in the bases that they share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.kernels.linalg.core_space import concatenated, core_shape, core_space, energy

SIDES = st.integers(1, 24)
RANKS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def drawn(shape: tuple[int, int], ranks: list[int], seed: int) -> list[tuple[np.ndarray, ...]]:
    normal = np.random.default_rng(seed).standard_normal
    return [(normal((shape[0], rank)), normal((rank, shape[1]))) for rank in ranks]


@given(SIDES, SIDES, RANKS, st.integers(0, 99))
def test_the_cores_in_their_bases_are_the_matrices(
    rows: int, columns: int, ranks: list[int], seed: int
) -> None:
    shape = rows, columns
    products = drawn(shape, ranks, seed)
    space = core_space(products, shape)
    for (left, right), core in zip(products, space.cores, strict=True):
        assert core.shape == core_shape(shape, sum(ranks)) and core.dtype == np.float32
        wide, narrow = space.placed(core.astype(np.float64), np.eye(core.shape[1]))
        exact = left @ right
        assert np.linalg.norm(wide @ narrow - exact) <= 1e-6 * np.linalg.norm(exact)
        assert energy((left, right)) == pytest.approx(np.square(exact).sum())


@given(SIDES, SIDES, RANKS, st.integers(0, 99))
def test_stacked_factors_are_the_weighted_sum(
    rows: int, columns: int, ranks: list[int], seed: int
) -> None:
    products = drawn((rows, columns), ranks, seed)
    factors = [0.5 - k for k in range(len(ranks))]
    left, right = concatenated(products, factors)
    exact = sum(factor * b @ a for factor, (b, a) in zip(factors, products))
    assert left.shape == (rows, sum(ranks)) and right.shape == (sum(ranks), columns)
    np.testing.assert_allclose(left @ right, exact, atol=1e-9)


def test_the_bases_are_orthonormal_also_of_what_is_twice_there() -> None:
    [once] = drawn((20, 30), [3], 0)
    space = core_space([once, once], (20, 30))
    assert space.left is not None and space.right is not None
    np.testing.assert_allclose(space.left.T @ space.left, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(space.right @ space.right.T, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(*space.cores, atol=1e-6)


def test_ranks_that_fill_a_side_keep_the_rows_and_columns() -> None:
    products = drawn((8, 50), [5, 3], 0)
    space = core_space(products, (8, 50))
    assert space.left is None and space.right is None
    for (left, right), core in zip(products, space.cores):
        np.testing.assert_array_equal(core, (left @ right).astype(np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_an_error(bad: float) -> None:
    [(left, right)] = drawn((9, 9), [2], 0)
    left[3, 1] = bad
    with pytest.raises(FloatingPointError):
        core_space([(left, right)], (9, 9))
