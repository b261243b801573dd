"""The kernels that a single method needs, element by element: the bits that torch gives."""

from __future__ import annotations

import numpy as np
from both_ways import as_tensor, needs_kernels, same, task_vectors, varied, vectors
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from resumerge import kernels
from resumerge.native import Vector

pytestmark = needs_kernels
FACTORS = st.floats(-2, 2)
SMALL = st.sampled_from([0.0, 1e-8, 1e-5, 0.5, 2.0]) | st.floats(0, 2)


def tensors(some: list[Vector]) -> list[Tensor]:
    return [as_tensor(vector) for vector in some]


def base_of(some: list[Vector]) -> Vector:
    assert some[0].base is not None
    return some[0].base


@varied
@given(st.data())
def test_limited(compiled: str, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 70) | st.sampled_from([1023, 1025, 5000]))
    values, middle = vectors(data.draw, 2, length)
    reach = data.draw(st.sampled_from([1e-3, 1.0, 3e38, 1e-45]) | st.floats(1e-6, 4))
    expected = kernels.clamp_to_distance(as_tensor(values), as_tensor(middle), reach)
    assert same(kernels.clamp_to_distance(values, middle, reach).data, expected.numpy())


@varied
@given(st.data())
def test_averaged_changes(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    rest = data.draw(SMALL), [data.draw(FACTORS) for _ in some]
    expected = kernels.add_mean_change(as_tensor(base_of(some)), tensors(some), *rest)
    assert same(kernels.add_mean_change(base_of(some), some, *rest).data, expected.numpy())


@varied
@given(st.data())
def test_changed_counts(compiled: str, data: st.DataObject) -> None:
    some, epsilon = data.draw(task_vectors()), data.draw(SMALL)
    expected = kernels.count_changes(tensors(some), epsilon)
    assert kernels.count_changes(some, epsilon).tolist() == expected.tolist()


@varied
@given(st.data())
def test_voted_sum(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    weights, thresholds = [[data.draw(s) for _ in some] for s in (FACTORS, SMALL)]
    rest = (weights, thresholds, data.draw(st.integers(0, len(some))), data.draw(FACTORS))
    expected = kernels.add_voted_sum(as_tensor(base_of(some)), tensors(some), *rest)
    assert same(kernels.add_voted_sum(base_of(some), some, *rest).data, expected.numpy())


@varied
@given(st.data())
def test_trimmed_mean(compiled: str, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 70) | st.sampled_from([1023, 1025, 5000]))
    some = vectors(data.draw, data.draw(st.integers(1, 9)), length)
    cut = data.draw(st.integers(0, (len(some) - 1) // 2))
    expected = kernels.trimmed_mean(tensors(some), cut)
    assert same(kernels.trimmed_mean(some, cut).data, expected.numpy())


@varied
@given(st.data())
def test_variance(compiled: str, data: st.DataObject) -> None:
    """Every bit, NaN's too: variances are keys of a selection."""
    some = data.draw(task_vectors())
    expected, found = kernels.variance(tensors(some)), kernels.variance(some)
    assert np.array_equal(found.data.view(np.uint32), expected.numpy().view(np.uint32))
    assert kernels.count_nonzero(found) == kernels.count_nonzero(expected)


@varied
@given(st.data())
def test_squares(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    mask = data.draw(masks(len(some[0])))
    expected = kernels.sums_of_squares(tensors(some), mask)
    assert same(kernels.sums_of_squares(some, mask), expected)


@varied
@given(st.data())
def test_weighted_majority(compiled: str, data: st.DataObject) -> None:
    some = data.draw(task_vectors())
    rest = data.draw(masks(len(some[0]))), [data.draw(SMALL) for _ in some]
    expected = kernels.add_majority_mean(as_tensor(base_of(some)), tensors(some), *rest)
    assert same(kernels.add_majority_mean(base_of(some), some, *rest).data, expected.numpy())


@st.composite
def masks(draw: st.DrawFn, length: int) -> np.ndarray | None:
    random = np.random.default_rng(draw(st.integers(0, 9)))
    return draw(st.none() | st.just(random.integers(0, 2, length, np.uint8)))
