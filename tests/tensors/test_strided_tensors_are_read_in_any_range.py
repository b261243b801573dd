"""Promise: a tensor whose elements lie at strides is read as numpy reads it, in whatever range, and
however much lies between its elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import evaluation, read

from resumerge.tensors import Stored
from resumerge.tensors.parts import part_of
from resumerge.tensors.stored import strided
from resumerge.tensors.stored.strided import read_strided

OFFSET = 6


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw a shape, and the strides of a permuted tensor, wider by gaps, or of a repeated one."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), draw(st.integers(1, 3))
    for axis in order:
        strides[axis] = 0 if draw(st.integers(0, 9)) == 0 else step
        step = step * shape[axis] + draw(st.integers(0, 2))
    return shape, tuple(strides)


@pytest.mark.parametrize("span", [2, 16, 1 << 20])
@given(layout=layouts(), data=st.data())
def test_any_range_of_any_layout(
    span: int, layout: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    shape, strides = layout
    reach = sum((n - 1) * stride for n, stride in zip(shape, strides)) + 1
    file = np.arange(OFFSET + reach, dtype=np.uint16)
    whole = np.lib.stride_tricks.as_strided(file[OFFSET:], shape, [2 * s for s in strides])
    start = data.draw(st.integers(0, whole.size))
    stop = data.draw(st.integers(start, whole.size))

    def read(offset: int, buffer: memoryview) -> None:
        assert len(buffer) <= max(span, 2), "no more than may be read at once"
        buffer[:] = file.view(np.uint8)[offset : offset + len(buffer)].data

    out = np.zeros(stop - start, np.uint16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strided, "SPAN", span)
        read_strided(read, 2 * OFFSET, shape, strides, start, stop, out)
    np.testing.assert_array_equal(out, whole.reshape(-1)[start:stop])


class Numbers:
    """A file in which each element of two bytes is its place."""

    def descriptor(self, tensor: object) -> None:
        return None

    def fill(self, tensor: object, offset: int, buffer: memoryview) -> None:
        data = np.arange(100, dtype=np.uint16).view(np.uint8)
        buffer[:] = data[offset : offset + len(buffer)].data


@pytest.mark.parametrize("strides", [None, (1, 12, 3)])
def test_a_part_has_the_elements_of_the_whole(strides: tuple[int, ...] | None) -> None:
    """An expert's matrix is a part of a packed tensor, wherever its elements lie."""
    whole = Stored("w", "BF16", (3, 2, 4), "f", 2 * OFFSET, strides)
    with_ = evaluation(Numbers())
    parts = [read(with_, part_of(whole, f"p{number}", (2, 4), number)) for number in range(3)]
    assert b"".join(parts) == read(with_, whole)


def test_elements_within_a_mebibyte_are_read_at_once() -> None:
    """Elements that are further apart are read one by one."""
    asked = list[tuple[int, int]]()

    def read(offset: int, buffer: memoryview) -> None:
        asked.append((offset, len(buffer)))

    out = np.zeros(2, np.uint16)
    read_strided(read, 0, (2,), ((1 << 19) - 1,), 0, 2, out)
    assert asked == [(0, 1 << 20)]
    asked.clear()
    read_strided(read, 0, (2,), (1 << 19,), 0, 2, out)
    assert asked == [(0, 2), (1 << 20, 2)]
