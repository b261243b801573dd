"""The kernels that compute by row or by column have the bits of the oracles."""

from __future__ import annotations

import numpy as np
from both_ways import DTYPES, agree, both, runs, same, task_vectors, varied
from hypothesis import given
from hypothesis import strategies as st
from vector_runs import part_of

from resumerge import kernels
from resumerge.kernels import BlockRun
from resumerge.native import Vector

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 70)) | st.sampled_from(
    [(1, 1), (70, 1), (3, 1023), (2, 1024), (1, 1025), (4, 2500), (1500, 3)]
)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[Vector], int]:
    """Draw some task vectors, and the length of their rows."""
    rows, row = draw(SHAPES)
    return draw(task_vectors(st.just(rows * row))), row


@varied
@given(st.data())
def test_row_gram(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    assert same(*both(lambda: kernels.row_gram(some, row)))


@varied
@given(st.data())
def test_a_row_is_added_up_as_a_vector_is(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    products = kernels.row_gram(some, row)
    for r in range(products.shape[2]):
        parts = [part_of(vector, slice(r * row, (r + 1) * row)) for vector in some]
        assert same(products[:, :, r], kernels.gram(parts, BlockRun(0, row, row))[0])


@varied
@given(st.data())
def test_column_gram(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    run = data.draw(runs(len(some[0]), row))
    assert same(*both(lambda: kernels.column_gram(some, row, run)))


@varied
@given(st.data())
def test_weighted_sums(compiled: str, data: st.DataObject) -> None:
    some, row = data.draw(matrices())
    length, dtype = len(some[0]), data.draw(DTYPES)
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    for by_column, count in ((False, length // row), (True, row)):
        weights = random.standard_normal((len(some), count))
        rest = weights, row, by_column
        agree(lambda out: kernels.weighted_sum_along(some, *rest, out), length, dtype)  # noqa: B023
