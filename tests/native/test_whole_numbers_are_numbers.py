"""A kernel accepts a whole number for a float64: 1 is as good as 1.0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from resumerge import kernels
from resumerge.kernels import BlockRun
from resumerge.native import Vector

ONES, ZEROS = (Vector(np.full(4096, number, np.float32)) for number in (1.0, 0.0))
DELTA = ONES.less(ZEROS)
RUN = BlockRun(0, 4096, 4096)
INTO: dict[str, Callable[[float, Vector], None]] = {
    "clamp_to_distance": lambda x, out: kernels.clamp_to_distance(ONES, ZEROS, x, out),
    "add_mean_change": lambda x, out: kernels.add_mean_change(ZEROS, [DELTA], x, [1], out),
    "add_voted_sum": lambda x, out: kernels.add_voted_sum(ZEROS, [DELTA], [1], [0], 0, x, out),
    "add_sum": lambda x, out: kernels.add_sum(ZEROS, [DELTA], x, out),
    "weighted_sum": lambda x, out: kernels.weighted_sum([ONES], [x], out),
}
GIVING: dict[str, Callable[[float], np.ndarray]] = {
    "count_changes": lambda x: kernels.count_changes([DELTA], x, RUN),
    "rank_mask": lambda x: kernels.rank_mask(ONES, 64, 0.5, 0 * x, "key", RUN),
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", INTO)
def test_whole_numbers(name: str, number: int) -> None:
    found, expected = (Vector(np.empty(4096, np.float32)) for _ in range(2))
    INTO[name](number, found)
    INTO[name](float(number), expected)
    np.testing.assert_array_equal(found.data, expected.data)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", GIVING)
def test_whole_numbers_of_those_that_return(name: str, number: int) -> None:
    np.testing.assert_array_equal(GIVING[name](number), GIVING[name](float(number)))
