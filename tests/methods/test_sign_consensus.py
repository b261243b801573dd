"""Sign consensus: the terms that have the sign of the sum, and the weights to divide by."""

import math

import numpy as np
import pytest

from resumerge.kernels import add_task_vectors, new_vector
from resumerge.native import Vector


def column(
    *terms: float, weights: tuple[float, ...] | None = None, normalize: bool = True
) -> float:
    base, *vectors = (Vector(np.array([term], np.float32)) for term in (0.0, *terms))
    ones, out = [1.0] * len(terms), new_vector(1)
    add_task_vectors(
        base,
        vectors,
        masks=[None] * len(terms),
        factors=ones,
        divisor_weights=weights or ones,
        elect_signs=True,
        normalize=normalize,
        scale=1.0,
        out=out,
    )
    return float(out.data[0])


def test_terms_that_agree_are_averaged() -> None:
    assert column(1, 3) == 2
    assert column(-1, -3) == -2


def test_the_sign_is_that_of_the_sum_not_of_the_most_terms() -> None:
    assert column(1, 1, -3) == -3
    assert column(2, 2, -3) == 2


def test_zeros_take_part_in_nothing() -> None:
    assert column(0, 4, 0) == 4
    assert column(0, 0) == 0


def test_a_sum_of_zero_counts_as_positive() -> None:
    assert column(1, -1) == 1


def test_without_normalize_they_are_summed() -> None:
    assert column(1, 3, -2, normalize=False) == 4


def test_divides_by_the_weights_of_the_terms_that_took_part() -> None:
    assert column(1, 3, -2, weights=(0.5, 1.5, 7)) == 2


def test_weights_that_cancel_do_not_divide() -> None:
    assert column(1, 3, weights=(1, -1)) == 4


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_infinite_term_decides(value: float) -> None:
    assert column(value, 1.0) == value


def test_a_term_that_is_no_number_gives_none() -> None:
    assert math.isnan(column(math.nan, 1.0))
    assert math.isnan(column(math.inf, -math.inf)) or math.isinf(column(math.inf, -math.inf))
