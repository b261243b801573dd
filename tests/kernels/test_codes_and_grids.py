"""Promise: codes become the numbers of their table, and a grid changes each block by its number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.kernels.quantised import apply_grid, decode
from resumerge.tensors.quantised.codes import E2M1, E8M0, whole_numbers


@pytest.mark.parametrize("numbers", [1, 2])
def test_each_byte_has_the_numbers_of_its_row(numbers: int) -> None:
    draw = np.random.default_rng(0)
    table = draw.standard_normal((256, numbers)).astype(np.float32)
    codes = draw.integers(0, 256, 5000).astype(np.uint8)
    out = np.empty(5000 * numbers, np.float32)
    decode(codes, table, out)
    assert np.array_equal(out.reshape(-1, numbers), table[codes])


@given(st.integers(0, 4), st.integers(1, 70), st.integers(1, 80), st.booleans())
def test_a_block_is_changed_by_its_number(
    rows: int, columns: int, block: int, subtracts: bool
) -> None:
    draw = np.random.default_rng(rows * columns + block)
    matrix = draw.standard_normal((rows, columns)).astype(np.float32)
    grid = draw.standard_normal((rows, -(-columns // block))).astype(np.float32)
    wide = np.repeat(grid, block, axis=1)[:, :columns]
    expected = matrix - wide if subtracts else matrix * wide
    apply_grid(matrix, columns, grid, block, subtracts=subtracts)
    assert np.array_equal(matrix, expected)


def test_the_numbers_of_codes_are_those_of_their_standards() -> None:
    assert E2M1.numbers[:8] == (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert [-x for x in E2M1.numbers[8:]] == list(E2M1.numbers[:8])
    assert (E8M0.numbers[0], E8M0.numbers[127], E8M0.numbers[254]) == (2.0**-127, 1, 2.0**127)
    assert np.isnan(E8M0.table[255])
    assert whole_numbers(4, 8).table[0x2F].tolist() == [7, -6], "the lower bits come first"
