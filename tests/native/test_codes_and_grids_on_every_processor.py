"""Codes become the numbers of their table, a grid changes each block: the same bits anywhere."""

from __future__ import annotations

import numpy as np
from both_ways import varied
from hypothesis import given
from hypothesis import strategies as st
from kernel_oracles import quantised

from resumerge.kernels.quantised import apply_grid, decode


@varied
@given(st.integers(0, 3000), st.sampled_from((1, 2)))
def test_each_byte_has_the_numbers_of_its_row(compiled: str, count: int, numbers: int) -> None:
    draw = np.random.default_rng(count)
    table = draw.standard_normal((256, numbers)).astype(np.float32)
    codes = draw.integers(0, 256, count).astype(np.uint8)
    out, expected = np.empty((2, count * numbers), np.float32)
    decode(codes, table, out)
    quantised.decode(codes, table, expected)
    assert np.array_equal(out, expected)


@varied
@given(st.integers(0, 4), st.integers(1, 70), st.integers(1, 80), st.booleans())
def test_a_block_is_changed_by_its_number(
    compiled: str, rows: int, columns: int, block: int, subtracts: bool
) -> None:
    draw = np.random.default_rng(rows * columns + block)
    matrix = draw.standard_normal((rows, columns)).astype(np.float32)
    grid = draw.standard_normal((rows, -(-columns // block))).astype(np.float32)
    expected = matrix.copy()
    quantised.apply_grid(expected, columns, grid, block, subtracts)
    apply_grid(matrix, columns, grid, block, subtracts=subtracts)
    assert np.array_equal(matrix, expected)
