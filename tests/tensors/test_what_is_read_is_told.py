"""Promise: `reads` and `reads_once` tell what `read` reads, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import evaluation, read

from resumerge.quantisation.gguf_blocks import encoded
from resumerge.tensors import (
    Gathered,
    Halved,
    Interleaved,
    Merged,
    Rounded,
    Sliced,
    Stacked,
    Stored,
    Tensor,
)
from resumerge.tensors.adapters.adapted import Adapted
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation, HeldValues
from resumerge.tensors.quantised.dequantised import Dequantised
from resumerge.tensors.quantised.packed_blocks import PackedBlocks
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO, Rows

WIDTH, HEIGHT, TABLES = 3, 6, 3

Elements = set[tuple[str, int]]
"""Elements of leaves: a leaf's name and a number."""


class CountingFiles:
    """Files of zeros that note the elements that are read.

    Args:
        leaves: the tensors in the files.
    """

    def __init__(self, leaves: Iterable[Stored]) -> None:
        self._leaves = {leaf.name: leaf for leaf in leaves}
        self.read: Elements = set()

    def descriptor(self, tensor: Any) -> None:
        return None

    def fill(self, tensor: Any, offset: int, buffer: memoryview) -> None:
        leaf = self._leaves[tensor.name]
        size = BITS[leaf.dtype] // 8
        first = (offset - leaf.offset) // size
        self.read |= {(leaf.name, first + k) for k in range(len(buffer) // size)}
        np.frombuffer(buffer, np.uint8)[:] = 0


def told(ranges: Iterator[tuple[Tensor, int, int]]) -> Elements:
    return {(leaf.name, k) for leaf, first, last in ranges for k in range(first, last)}


def found(tensor: Tensor, leaves: Iterable[Stored], start: int, stop: int) -> Elements:
    """Return the elements that are read for a range if no value is held yet."""
    files = CountingFiles(leaves)
    read(evaluation(files), tensor, start, stop)
    return files.read


def stored(number: int, height: int = HEIGHT) -> Stored:
    return Stored(f"t{number}", ("F32", "BF16", "F16")[number % 3], (height, WIDTH), "f", 64)


ROW = st.integers(0, HEIGHT - 1)
MEMBERS = st.lists(st.tuples(st.integers(0, TABLES - 1), ROW), min_size=1, max_size=3)
ORIGINS = st.one_of(st.tuples(st.integers(0, TABLES - 1), ROW), st.just(ZERO), MEMBERS)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Draw rows of tables, zeros and averages, and then rows of padding."""
    drawn, padding = draw(st.lists(ORIGINS, min_size=1, max_size=12)), draw(st.integers(0, 2))
    origins, firsts = [], []
    averages: list[list[tuple[int, int]]] = []
    for row in drawn:
        if isinstance(row, list):
            origins.append(AVERAGE)
            firsts.append(len(averages))
            averages.append(row)
        else:
            origin, first = row if isinstance(row, tuple) else (row, 0)
            origins.append(origin)
            firsts.append(first)
    members = [member for average in averages for member in average]
    return Rows.of(
        np.array(origins + [MEAN] * padding),
        np.array(firsts + [0] * padding),
        len(drawn),
        (
            np.cumsum([0, *map(len, averages)]),
            np.array([origin for origin, _ in members], np.int64),
            np.array([row for _, row in members], np.int64),
        ),
    )


@given(rows=rows(), rounded=st.booleans(), data=st.data())
def test_of_gathered_rows(rows: Rows, rounded: bool, data: st.DataObject) -> None:
    leaves = [stored(number) for number in range(TABLES)]
    tables: list[Tensor] = list(leaves)
    if rounded:
        tables[0] = Rounded.of(leaves[0], "BF16", as_input=True)
    tensor = Gathered.of("e", (rows.count, WIDTH), tuple(tables), rows)
    start = data.draw(st.integers(0, tensor.numel))
    stop = data.draw(st.integers(start, tensor.numel))
    expected = told(tensor.reads(start, stop))
    if stop > max(start, rows.named * WIDTH):  # a row of padding
        expected |= told(tensor.reads_once())
    assert found(tensor, leaves, start, stop) == expected
    assert told(tensor.reads_once()) == (
        told(tensor.reads(0, rows.named * WIDTH)) if rows.has_mean else set()
    )


def test_tables_have_passed_with_the_last_element() -> None:
    """Any element but the last may be followed by one that reads any row."""
    leaves = [stored(0), stored(1)]
    none = np.array([], np.int64)
    rows = Rows.of(np.array([0, 1]), np.array([0, 3]), 2, (np.array([0]), none, none))
    tensor = Gathered.of("e", (2, WIDTH), tuple(leaves), rows)
    assert told(tensor.no_longer_read(0, tensor.numel - 1)) == set()
    everything = {(leaf.name, k) for leaf in leaves for k in range(leaf.numel)}
    assert told(tensor.no_longer_read(tensor.numel - 1, tensor.numel)) == everything


@given(first=st.integers(0, WIDTH * HEIGHT), data=st.data())
def test_of_parts_and_stacks(first: int, data: st.DataObject) -> None:
    """A later element reads nothing of what has passed."""
    leaves = [stored(number) for number in (0, 3, 6)]
    whole = Stacked.of("s", (3 * HEIGHT, WIDTH), tuple(leaves))
    numel = data.draw(st.integers(1, whole.numel - first))
    tensor = Rounded.of(Sliced.of("part", (numel,), whole, first), "BF16")
    start = data.draw(st.integers(0, numel))
    stop = data.draw(st.integers(start, numel))
    read_now = told(tensor.reads(start, stop))
    assert found(tensor, leaves, start, stop) == read_now
    assert told(tensor.no_longer_read(start, stop)) == read_now


def test_a_part_begins_where_its_whole_does_unless_told_otherwise() -> None:
    leaf = stored(0)
    part = Sliced.of("part", (WIDTH,), leaf)
    assert told(part.reads(0, WIDTH)) == told(leaf.reads(0, WIDTH))


def test_floats_are_returned_and_in_the_array_that_is_given() -> None:
    leaf = stored(1)
    with_ = evaluation(CountingFiles([leaf]))
    out = np.full(leaf.numel, 7, np.float32)
    found = leaf.floats(with_, 0, leaf.numel, out)
    assert found is out and not out.any()
    assert not leaf.floats(with_, 0, leaf.numel).any()


def test_a_table_that_is_not_rounded_is_read_into_one_buffer() -> None:
    leaf = stored(0)  # of float32
    none = np.array([], np.int64)
    rows = Rows.of(np.array([0]), np.array([3]), 1, (np.array([0]), none, none))
    plain = Gathered.of("e", (1, WIDTH), (leaf,), rows)
    assert plain.working_bytes(10) == 10 * BITS[leaf.dtype] // 8
    rounded = Gathered.of("e", (1, WIDTH), (Rounded.of(leaf, "BF16", as_input=True),), rows)
    assert rounded.working_bytes(10) > plain.working_bytes(10)


class NoMethod:
    """A call that computes nothing."""

    def compute(self, *given: Any) -> None:
        pass


@given(block=st.integers(1, WIDTH * HEIGHT), data=st.data())
def test_of_a_merge_whose_blocks_a_range_cuts(block: int, data: st.DataObject) -> None:
    """A merge is computed in whole blocks."""
    leaves = [stored(0), stored(3)]
    shape, weights = leaves[0].shape, ({"weight": 0.5}, {"weight": 0.5})
    tensor = Merged(
        name="m",
        dtype="F32",
        shape=shape,
        method="linear",
        operands=tuple(leaves),
        params={"normalize": True},
        per_operand=weights,
        base=None,
        seed=0,
        block_elements=block,
    )
    start = data.draw(st.integers(0, tensor.numel - 1))
    stop = data.draw(st.integers(start + 1, tensor.numel))
    files = CountingFiles(leaves)
    computing = Evaluation(files, Buffers(), HeldValues(0), lambda merged: NoMethod(), {})
    tensor.read(computing, start, stop, np.empty(4 * (stop - start), np.uint8))
    assert files.read == told(tensor.reads(start, stop))


@pytest.mark.needs("torch")
@given(dora=st.booleans(), scaled=st.booleans(), data=st.data())
def test_of_adapted_weights(dora: bool, scaled: bool, data: st.DataObject) -> None:
    """The norms of DoRA read all of the weight, whatever part of it is read."""
    weight, rank = stored(0), 2
    a = Stored("a", "F32", (rank, WIDTH), "f", 64)
    b = Stored("b", "F32", (HEIGHT, rank), "f", 64)
    magnitude = Stored("m", "F32", (HEIGHT,), "f", 64) if dora else None
    alpha = Stored("alpha", "F32", (), "f", 64) if scaled else None
    tensor = Adapted.of("w", weight, a, b, 1.0, False, magnitude, alpha)
    start = data.draw(st.integers(0, tensor.numel - 1))
    stop = data.draw(st.integers(start + 1, tensor.numel))
    leaves = [weight, a, b, *filter(None, (magnitude, alpha))]
    expected = told(tensor.reads(start, stop)) | told(tensor.reads_once())
    assert found(tensor, leaves, start, stop) == expected


CODES = Stored("codes", "I8", (8, 6), "f", 64)
SCALES = Stored("scales", "F32", (4, 2), "f", 64)
SCALED = replace(Dequantised.elementwise(CODES, (8, 6), "scaled", scale=SCALES), block=(2, 3))
CODED = PackedBlocks(
    name="w",
    dtype="F32",
    shape=(24,),
    scheme="made up",
    coded=Stored("coded", "U8", (12,), "f", 64),
    elements=6,
    block_bytes=3,
    decode=lambda blocks, values: None,
    milliseconds=1.0,
)


@pytest.mark.parametrize(
    "tensor",
    [
        Halved.of(Stored("w", "BF16", (8, WIDTH), "f", 64), 4),
        Interleaved.of(Stored("w", "BF16", (8, WIDTH), "f", 64), 4),
        Gathered.of("e", (1, WIDTH), (stored(0),), Rows.of(
            np.array([0]), np.array([3]), 1, (np.array([0]), *[np.array([], np.int64)] * 2)
        )),
        SCALED,
        CODED,
        encoded(Stored("w", "F32", (2, 64), "f", 64), "Q8_0"),
    ],
    ids=lambda tensor: type(tensor).__name__,
)  # fmt: skip
def test_no_later_element_reads_what_has_passed(tensor: Tensor) -> None:
    """All elements that were read have passed with the last element."""
    passed: Elements = set()
    for stop in range(1, tensor.numel + 1):
        passed |= told(tensor.no_longer_read(stop - 1, stop))
        assert not passed & told(tensor.reads(stop, tensor.numel)), stop
    assert passed >= told(tensor.reads(0, tensor.numel))
