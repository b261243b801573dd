"""Promise: a tensor that is drawn has the numbers of its key, between its bounds or normal, in
whatever range it is read."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import evaluation, read

from resumerge.kernels.draws import normals, uniforms
from resumerge.tensors.generated.drawn import Drawn

COUNT = 1000
NO_FILES: Any = None


@cache
def drawn(bound: float | None, start: int = 0, stop: int = COUNT) -> np.ndarray:
    tensor = Drawn.of("w", (COUNT,), "key", bound)
    return np.frombuffer(read(evaluation(NO_FILES), tensor, start, stop), np.float32)


def test_uniform_ones_lie_between_the_bounds() -> None:
    numbers = drawn(0.5)
    assert -0.5 < numbers.min() < -0.49 and 0.49 < numbers.max() < 0.5
    share = uniforms("key", 0, COUNT)
    np.testing.assert_allclose(numbers, share - 0.5, atol=1e-7)


def test_without_a_bound_they_are_normal() -> None:
    np.testing.assert_array_equal(drawn(None), normals("key", 0, COUNT).astype(np.float32))


@pytest.mark.parametrize("bound", [0.5, None])
@given(start=st.integers(0, COUNT), data=st.data())
def test_a_range_has_the_numbers_of_the_whole(
    bound: float | None, start: int, data: st.DataObject
) -> None:
    stop = data.draw(st.integers(start, COUNT))
    np.testing.assert_array_equal(drawn(bound, start, stop), drawn(bound)[start:stop])
