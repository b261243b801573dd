"""Where a kernel takes a float64, a whole number is one, too: 1 is as good as 1.0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from resumerge.native import Vector, calls, elements

ONES, ZEROS = (Vector(np.full(4096, number, np.float32)) for number in (1.0, 0.0))
DELTA = ONES.less(ZEROS)
KERNELS: dict[str, Callable[[float], Vector | np.ndarray]] = {
    "limited": lambda x: elements.clamp_to_distance(ONES, ZEROS, x),
    "averaged_changes": lambda x: elements.add_mean_change(ZEROS, [DELTA], x, [1.0]),
    "changed_counts": lambda x: elements.count_changes([DELTA], x),
    "voted_sum": lambda x: elements.add_voted_sum(ZEROS, [DELTA], [1.0], [0.0], 0, x),
    "combine": lambda x: calls.combine(ZEROS, [DELTA], [None], [1.0], [1.0], 0, x),
    "kept_by_rank, density": lambda x: calls.rank_mask(ONES, 5, 0, 64, 1, x, 0.0),
    "kept_by_rank, reach": lambda x: calls.rank_mask(ONES, 5, 0, 64, 1, 0.5, x),
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_whole_numbers(compiled: str, name: str, number: int) -> None:
    found, expected = KERNELS[name](number), KERNELS[name](float(number))
    arrays = [x.data if isinstance(x, Vector) else x for x in (found, expected)]
    np.testing.assert_array_equal(*arrays)
