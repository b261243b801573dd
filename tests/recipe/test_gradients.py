"""A gradient passes through its entries at equal distances and is straight between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.recipe import interpolate

GRADIENTS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)
PLACES = st.floats(0, 1)


def close(value: float, gradient: list[float]) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-9 * (1 + max(map(abs, gradient))))


@given(GRADIENTS)
def test_passes_through_its_entries(gradient: list[float]) -> None:
    assert interpolate(gradient, 0) == gradient[0]
    assert interpolate(gradient, 1) == gradient[-1]
    for index, entry in enumerate(gradient[1:], 1):
        assert interpolate(gradient, index / (len(gradient) - 1)) == close(entry, gradient)


@given(GRADIENTS, PLACES)
def test_stays_within_its_entries(gradient: list[float], t: float) -> None:
    rounding = 1e-15 * max(map(abs, gradient))
    assert min(gradient) - rounding <= interpolate(gradient, t) <= max(gradient) + rounding


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), PLACES)
def test_two_entries_are_a_line(first: float, last: float, t: float) -> None:
    assert interpolate([first, last], t) == close(first + t * (last - first), [first, last])


@given(GRADIENTS, PLACES)
def test_read_backwards_it_is_the_same(gradient: list[float], t: float) -> None:
    assert interpolate(gradient[::-1], 1 - t) == close(interpolate(gradient, t), gradient)


@pytest.mark.parametrize("t", [-0.1, 1.1, float("nan")])
def test_has_no_value_outside(t: float) -> None:
    with pytest.raises(ValueError):
        interpolate([0, 1], t)
