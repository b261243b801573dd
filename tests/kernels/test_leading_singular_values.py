"""The leading part of a matrix is numpy's, or close to it where that would take long."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.kernels.linalg.low_rank import Decomposition, decompose, is_small


def by_rows(matrix: np.ndarray, rank: int, at_once: int = 37) -> Decomposition:
    def rows() -> Iterable[np.ndarray]:
        return (matrix[first : first + at_once] for first in range(0, len(matrix), at_once))

    return decompose(rows, matrix.shape, rank, "key")


def product(found: Decomposition) -> np.ndarray:
    return (found.left * found.values) @ found.right


def drawn(rows: int, columns: int, rank: int, noise: float, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    low = draw.standard_normal((rows, rank)) @ draw.standard_normal((rank, columns))
    return (low + noise * draw.standard_normal((rows, columns))).astype(np.float32)


@given(
    st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.integers(0, 9), st.integers(1, 9)
)
def test_with_a_short_side_it_is_the_best_of_its_rank(
    rows: int, columns: int, rank: int, low: int, at_once: int
) -> None:
    matrix = drawn(rows, columns, low, 0.1, seed=rows)
    rank = min(rank, rows, columns)
    found = by_rows(matrix, rank, at_once)
    exact = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(found.values, exact[:rank], atol=1e-6 * exact[0])
    np.testing.assert_allclose(found.energy, np.square(exact).sum(), rtol=1e-6)
    rest = np.linalg.norm(matrix - product(found))
    assert rest <= np.sqrt(np.square(exact[rank:]).sum()) + 1e-5 * exact[0]


@pytest.mark.parametrize("shape", [(400, 400), (350, 900), (900, 350)])
@pytest.mark.parametrize(("noise", "share"), [(0.0, 1e-6), (0.5, 1e-3), (50.0, 1e-2)])
def test_of_a_large_matrix_it_keeps_what_the_best_keeps(
    shape: tuple[int, int], noise: float, share: float
) -> None:
    """The loss is a share of what the best of the rank keeps; noise has no low rank to find."""
    matrix = drawn(*shape, 12, noise)
    assert not is_small(*shape, 16)
    found = by_rows(matrix, 16)
    best = np.square(np.linalg.svd(matrix, compute_uv=False)[:16].astype(np.float64)).sum()
    assert (1.0 - share) * best <= np.square(found.values).sum() <= best * (1.0 + 1e-5)
    np.testing.assert_allclose(found.left.T @ found.left, np.eye(16), atol=1e-4)
    np.testing.assert_allclose(found.right @ found.right.T, np.eye(16), atol=1e-4)
    rest = np.square(matrix - product(found), dtype=np.float64).sum()
    assert rest <= found.energy - np.square(found.values).sum() + 1e-5 * found.energy


def test_threads_that_work_at_once_change_no_bit() -> None:
    matrices = [drawn(400, 380, 8, 0.1, seed) for seed in range(6)]
    alone = [by_rows(matrix, 8) for matrix in matrices]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda matrix: by_rows(matrix, 8), matrices))
    for one, other in zip(alone, together):
        assert one.left.tobytes() == other.left.tobytes()
        assert one.values.tobytes() == other.values.tobytes()
        assert one.right.tobytes() == other.right.tobytes()


def test_nothing_is_zeros() -> None:
    found = by_rows(np.zeros((40, 30), np.float32), 4)
    assert found.energy == 0.0 and not found.values.any()
    assert (found.left.shape, found.right.shape) == ((40, 4), (4, 30))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_told(number: float) -> None:
    matrix = drawn(40, 30, 2, 0.1)
    matrix[3, 3] = number
    with pytest.raises(FloatingPointError):
        by_rows(matrix, 4)
