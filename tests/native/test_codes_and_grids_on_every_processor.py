"""Codes become the numbers of their table, a grid changes each block: the same bits anywhere."""

from __future__ import annotations

import numpy as np
from both_ways import varied
from hypothesis import given
from hypothesis import strategies as st
from kernel_oracles import quantised

from resumerge.kernels.quantised import Code, apply_grid, block_maxima, decode, quantise


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


SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        1e-45,
        -1e-45,
        0.25,
        -0.25,
        0.75,
        2.5,
        3.5,
        5.0,
        448,
        464.1,
    ],
    np.float32,
)


@varied
@given(st.integers(0, 4), st.integers(1, 70), st.integers(1, 80))
def test_the_largest_magnitude_of_a_block_is_found(
    compiled: str, rows: int, columns: int, block: int
) -> None:
    draw = np.random.default_rng(rows * columns + block)
    matrix = _numbers(draw, rows * columns)
    expected = quantised.block_maxima(matrix, columns, block)
    assert np.array_equal(block_maxima(matrix, columns, block), expected, equal_nan=True)


@varied
@given(st.integers(0, 4), st.integers(1, 600), st.integers(1, 600), st.sampled_from(Code))
def test_numbers_get_the_nearest_code(
    compiled: str, rows: int, columns: int, block: int, code: Code
) -> None:
    columns, block = columns * code.per_byte, block * code.per_byte
    draw = np.random.default_rng(rows * columns + block)
    matrix = _numbers(draw, rows * columns)
    grid = np.exp2(draw.integers(-3, 2, rows * -(-columns // block))).astype(np.float32)
    out = np.empty(rows * columns // code.per_byte, np.uint8)
    quantise(matrix, columns, grid, block, code, out)
    assert np.array_equal(out, quantised.quantise(matrix, columns, grid, block, code))


def _numbers(draw: np.random.Generator, count: int) -> np.ndarray:
    numbers = (draw.standard_normal(count) * np.exp2(draw.integers(-8, 9, count))).astype(
        np.float32
    )
    numbers[draw.random(count) < 0.1] = draw.choice(SPECIAL)
    halves = draw.random(count) < 0.3
    numbers[halves] = np.round(numbers[halves] * 4) / 4
    return numbers
