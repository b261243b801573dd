"""The kernels that compute by row or by column: the bits of the code that needs no compiler."""

from __future__ import annotations

import numpy as np
from both_ways import as_tensor, needs_kernels, same, task_vectors, varied
from hypothesis import given
from hypothesis import strategies as st

from resumerge import kernels
from resumerge.native import Vector

pytestmark = needs_kernels
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 70)) | st.sampled_from(
    [(1, 1), (70, 1), (3, 1023), (2, 1024), (1, 1025), (4, 2500), (1500, 3)]
)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[Vector], int]:
    """Some task vectors, and the length of their rows."""
    rows, row = draw(SHAPES)
    return draw(task_vectors(st.just(rows * row))), row


@varied
@given(st.data())
def test_row_gram(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    expected = kernels.row_gram([as_tensor(vector) for vector in some], row)
    assert same(kernels.row_gram(some, row), expected)


@varied
@given(st.data())
def test_a_row_is_added_up_as_a_vector_is(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    products = kernels.row_gram(some, row)
    for r in range(products.shape[2]):
        parts = [_part(vector, r * row, (r + 1) * row) for vector in some]
        assert same(np.ascontiguousarray(products[:, :, r]), kernels.gram(parts))


@varied
@given(st.data())
def test_column_gram(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    expected = kernels.column_gram([as_tensor(vector) for vector in some], row)
    assert same(kernels.column_gram(some, row), expected)


@varied
@given(st.data())
def test_weighted_sums(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    for weighted_sum, count in (
        (kernels.weighted_sum_by_row, len(some[0]) // row),
        (kernels.weighted_sum_by_column, row),
    ):
        weights = random.standard_normal((len(some), count))
        expected = weighted_sum([as_tensor(vector) for vector in some], weights, row)
        assert same(weighted_sum(some, weights, row).data, expected.numpy())


def _part(whole: Vector, start: int, stop: int) -> Vector:
    base = whole.base and _part(whole.base, start, stop)
    return Vector(whole.data[start:stop], whole.dtype, base)
