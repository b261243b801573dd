"""Promise: the sums of an adapter's products are exact, so that no order of them matters."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from resumerge.tensors.adapters.low_rank import Change, _as_integers, folded_sum

RANKS = [1, 2, 3, 4, 5, 8, 9, 16, 17, 64, 65, 256, 1000, 1025]


def delta(a: Tensor, b: Tensor, *, scale: float = 1.0, transposed: bool = False) -> Change:
    """Return the change ``scale * b @ a``."""
    return Change(a, b, scale, transposed)


def added(change: Change, rows: int, columns: int) -> Tensor:
    weight = torch.zeros(rows, columns, dtype=torch.float64)
    return change.added(weight, slice(0, rows), slice(0, columns))


def worst(rank: int, count: int, seed: int) -> Tensor:
    """Return numbers of 24 bits just below a power of two, whose last bits differ.

    The shape is (count, rank).
    """
    last = np.random.default_rng(seed).integers(0, 1 << 10, (count, rank))
    return torch.from_numpy(1 - (2 * last + 1) * 2.0**-24).float()


@pytest.mark.parametrize("rank", RANKS)
def test_the_largest_sum_of_the_longest_numbers_has_no_rounding(rank: int) -> None:
    left, right = worst(rank, 3, 1), worst(rank, 4, 2).T.contiguous()
    bits = (53 - (rank - 1).bit_length()) // 2
    change = delta(right, left)
    integers, unit = _as_integers(left, 1, change._bits)
    others, other_unit = _as_integers(right, 0, change._bits)
    found = added(change, 3, 4)
    for i in range(3):
        for j in range(4):
            exact = sum(int(integers[i, k]) * int(others[k, j]) for k in range(rank))
            assert abs(exact) <= 2**53
            scaled = (
                Fraction(exact) * Fraction(float(unit[i, 0])) * Fraction(float(other_unit[0, j]))
            )
            assert Fraction(float(found[i, j])) == scaled
    assert change._bits == bits, "no bit less than fits"


@pytest.mark.parametrize("rank", RANKS[:10])
@pytest.mark.parametrize("transposed", [False, True])
def test_each_part_is_the_same_in_whatever_parts_and_order_it_is_computed(
    rank: int, transposed: bool
) -> None:
    a, b = worst(rank, 7, 3).T.contiguous(), worst(rank, 5, 4)
    shape = (7, 5) if transposed else (5, 7)
    whole = added(delta(a, b, scale=0.37, transposed=transposed), *shape)
    order = torch.randperm(rank)
    shuffled = delta(a[order], b[:, order], scale=0.37, transposed=transposed)
    assert torch.equal(added(shuffled, *shape), whole)
    for row in range(shape[0]):
        for column in range(shape[1]):
            one = torch.zeros(1, 1, dtype=torch.float64)
            rows, columns = slice(row, row + 1), slice(column, column + 1)
            assert shuffled.added(one, rows, columns).item() == whole[row, column]


@given(
    st.lists(
        st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=3, max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_as_integers_it_is_the_same_to_the_bits_that_there_are(rows: list[list[float]]) -> None:
    matrix = torch.tensor(rows, dtype=torch.float32)
    integers, unit = _as_integers(matrix, 1, 22)
    assert torch.equal(integers, integers.round())
    assert integers.abs().max() <= 2**22
    assert all(value == 0 or np.frexp(value)[0] == 0.5 for value in unit.flatten().tolist())
    assert ((integers * unit - matrix.double()).abs() <= unit / 2).all(), "to nearest"
    largest = matrix.double().abs().amax(1, keepdim=True)
    assert ((integers * unit - matrix.double()).abs() <= largest * 2.0**-22 + 1e-270).all()


def test_by_rows_or_columns() -> None:
    matrix = torch.tensor([[1.0, 1024.0], [0.5, 0.0]])
    assert _as_integers(matrix, 1, 22)[1].shape == (2, 1)
    assert _as_integers(matrix, 0, 22)[1].shape == (1, 2)
    assert torch.equal(added(delta(matrix, torch.eye(2)), 2, 2), matrix.double())
    zeros = torch.zeros(2, 2)
    assert torch.equal(added(delta(zeros, zeros), 2, 2), zeros.double())


def test_numbers_of_all_sizes_are_added() -> None:
    """Each row and column has its own unit, also with float32's smallest number in it."""
    tiny = 2.0**-149
    a = torch.tensor([[tiny, 1e30, 3.0]])
    b = torch.tensor([[2.0], [tiny]])
    found = added(delta(a, b, scale=2.0), 2, 3)
    assert found.tolist() == [
        [4 * tiny, 4 * np.float64(np.float32(1e30)), 12.0],
        [2 * tiny * tiny, 2 * tiny * np.float64(np.float32(1e30)), 6 * tiny],
    ]


def by_halves(values: list[float]) -> float:
    """Return the sum of values: halves are added, and an odd last value to the first."""
    while len(values) > 1:
        half = len(values) // 2
        folded = [x + y for x, y in zip(values[:half], values[half : 2 * half])]
        if len(values) % 2:
            folded[0] += values[-1]
        values = folded
    return values[0]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 31, 100])
def test_squares_are_added_by_halves(count: int) -> None:
    values = torch.randn(3, count, dtype=torch.float64, generator=torch.manual_seed(count))
    expected = [by_halves(row) for row in values.tolist()]
    assert folded_sum(values.clone(), 1).tolist() == expected
    assert folded_sum(values.T.clone(), 0).tolist() == expected


def test_magnitudes_are_of_the_outputs() -> None:
    a, b = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for transposed in (False, True):
        change = delta(a, b, transposed=transposed)
        change.factors = torch.tensor([10.0, 100.0], dtype=torch.float64)
        expected = torch.tensor([[10.0, 20.0], [300.0, 400.0]], dtype=torch.float64)
        assert torch.equal(added(change, 2, 2), expected.T if transposed else expected)
        change = delta(a, b, transposed=transposed)
        change.factors = torch.tensor([10.0, 100.0], dtype=torch.float64)
        one = change.added(torch.ones(1, 1, dtype=torch.float64), slice(1, 2), slice(0, 1))
        assert one.item() == (3 if transposed else 4) * (10 if transposed else 100)
