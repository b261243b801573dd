"""Promise: blocks, targets and rows of embeddings have the sizes that the format says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from every_kind import NotedFiles, leaf
from reading import evaluation, read

from resumerge.tensors import Gathered, Rounded, Stored, gathered
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO, Rows, vocabulary_rows
from resumerge.tensors.target import BLOCK_ELEMENTS, BLOCK_RUN_BYTES, Target, block_elements

A = Stored("a", "F32", (4, 3), "f", 64)


def test_a_block_is_of_whole_rows_that_must_not_be_split() -> None:
    assert BLOCK_ELEMENTS == 1 << 18 and BLOCK_RUN_BYTES == 4 * 4 * BLOCK_ELEMENTS
    table = {
        None: BLOCK_ELEMENTS,
        0: BLOCK_ELEMENTS,
        1: BLOCK_ELEMENTS,
        1000: 262000,
        BLOCK_ELEMENTS: BLOCK_ELEMENTS,
        BLOCK_ELEMENTS + 1: BLOCK_ELEMENTS + 1,
    }
    assert {row: block_elements(row) for row in table} == table
    assert block_elements(BLOCK_ELEMENTS // 2 + 1) == BLOCK_ELEMENTS // 2 + 1


def test_a_target_has_the_alignment_of_its_widest_tensor() -> None:
    shape = (4, 3)
    plain = Target("t", "BF16", shape, 5, A, {"t": shape})
    assert (plain.alignment, plain.nbytes, plain.continues_tensor) == (16, 24, False)
    packed = Target("t", "U8", (9,), 5, A, {"t": shape}, {"t": "BF16", "s": "F32"})
    assert (packed.alignment, packed.nbytes) == (32, 9)
    assert replace(packed, dtypes={"t": "F4"}).alignment == 8
    assert replace(plain, tensors={}).continues_tensor


def rows_of(origins: list[int], firsts: list[int], named: int = 0, members: Any = None) -> Rows:
    none = np.zeros(0, np.int64)
    averages = members or (np.zeros(1, np.int64), none, none)
    return Rows.of(np.array(origins), np.array(firsts), named, averages)


@pytest.mark.parametrize(
    ("rows", "identity"),
    [
        (rows_of([1, 1, 1], [0, 1, 2]), True),
        (rows_of([0, 0, 0], [0, 1, 2]), False),
        (rows_of([1, 1, 1], [1, 2, 3]), False),
        (rows_of([1, 1], [0, 1]), False),
        (rows_of([1, 1, 1], [0, 2, 1]), False),
        (rows_of([1, 1, ZERO], [0, 1, 2]), False),
        (rows_of([1, 1, 1, 1], [0, 1, 2, 3]), False),
    ],
)
def test_one_tensor_is_unchanged_only_if_all_its_rows_are_in_order(
    rows: Rows, identity: bool
) -> None:
    """The tensor has the number 1 and three rows."""
    assert bool(rows.is_identity(1, 3)) is identity


def test_runs_are_consecutive_rows_of_one_tensor_or_rows_of_one_number() -> None:
    members = (np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([5, 6, 7]))
    rows = rows_of(
        [0, 0, 1, 1, ZERO, ZERO, AVERAGE, AVERAGE, MEAN, MEAN],
        [4, 5, 6, 8, 0, 0, 0, 1, 0, 0],
        8,
        members,
    )
    assert rows.starts.tolist() == [0, 2, 3, 4, 6, 8]
    found = rows.runs(1, 7)
    assert list(zip(found.begins.tolist(), found.ends.tolist(), found.origins.tolist())) == [
        (1, 2, 0), (2, 3, 1), (3, 4, 1), (4, 6, ZERO), (6, 7, AVERAGE)
    ]  # fmt: skip
    assert found.shifts.tolist() == [4, 4, 5, -4, -6]
    edge = rows.runs(2, 4)
    assert edge.begins.tolist() == [2, 3] and edge.ends.tolist() == [3, 4]
    assert [rows.members(number) for number in (0, 1)] == [[(0, 5), (1, 6)], [(1, 7)]]
    swapped = rows_of([AVERAGE, AVERAGE], [1, 0], 2, members)
    assert swapped.starts.tolist() == [0, 1], "averages are no rows of one number"
    assert rows.has_mean and not rows_of([0, ZERO], [0, 0]).has_mean
    assert rows.count == 10 and rows.nbytes == 8 * (3 * 6 + 3 + 3 + 3)


def test_the_checksum_of_rows_is_of_every_array() -> None:
    rows = rows_of([0, 1, AVERAGE], [0, 3, 0], 3, (np.array([0, 1]), np.array([0]), np.array([2])))
    names = ("starts", "origins", "firsts", "offsets", "member_origins", "member_rows")
    found = {
        str(replace(rows, **{name: getattr(rows, name) + 1}).as_json()["checksum"])
        for name in names
    }
    assert len(found | {str(rows.as_json()["checksum"])}) == 1 + len(names)
    assert rows.as_json() == {
        "count": 3,
        "runs": 3,
        "checksum": rows.as_json()["checksum"],
    }
    assert rows_of([0, 0, 0, 1], [0, 1, 2, 0]).as_json()["count"] == 4
    wide = replace(rows, firsts=rows.firsts + (1 << 32))
    narrow = replace(rows, firsts=rows.firsts.astype(np.int32))
    assert wide.as_json() != rows.as_json() == narrow.as_json()


def test_the_vocabulary_is_the_first_axis_that_is_not_one() -> None:
    shapes: dict[tuple[int, ...], int] = {(7, 3): 7, (1, 7, 3): 7, (1, 1): 1, (): 1, (5,): 5}
    assert {shape: vocabulary_rows(shape) for shape in shapes} == shapes


def test_averages_and_means_are_summed_in_float64_and_rounded_once() -> None:
    """The sums are made in pieces of some rows, whose size is a part of the format."""
    values = np.array([[2.0**24, 1], [1, 2], [1, 3], [0, 4]], np.float32)
    table = leaf("t", values)
    members = (np.array([0, 3]), np.zeros(3, np.int64), np.array([0, 1, 2]))
    average = Gathered.of("e", (1, 2), (table,), rows_of([AVERAGE], [0], 1, members))
    found = read(evaluation(NotedFiles({"t": values})), average)
    assert np.frombuffer(found, np.float32).tolist() == [np.float32((2.0**24 + 2) / 3), 2]
    padded = Gathered.of("e", (5, 2), (table,), rows_of([0, 0, 0, 0, MEAN], [0, 1, 2, 3, 0], 4))
    for elements in (2, 4, 6, 1 << 18):
        with patch.object(gathered, "MEAN_ELEMENTS", elements):
            found = read(evaluation(NotedFiles({"t": values})), padded, 8, 10)
        assert np.frombuffer(found, np.float32).tolist() == [2.0**22 + 0.5, 2.5]
    assert gathered.MEAN_ELEMENTS == 1 << 18


def test_tables_of_one_type_are_rounded_to_the_types_of_the_recipe_each() -> None:
    values = np.full((2, 2), 1 + 2**-9, np.float32)
    plain = leaf("t", values)
    tables = (plain, *(Rounded.of(plain, kind, as_input=True) for kind in ("BF16", "F16")))
    tensor = Gathered.of("e", (3, 2), tables, rows_of([0, 1, 2], [0, 0, 1]))
    found = np.frombuffer(read(evaluation(NotedFiles({"t": values})), tensor), np.float32)
    assert found.tolist() == [1 + 2**-9] * 2 + [1.0] * 2 + [1 + 2**-9] * 2


def test_rows_are_as_long_as_what_an_embedding_has_for_each_token() -> None:
    """An embedding need not be a matrix, and its shape may begin with 1."""
    for shape in ((4, 6), (1, 4, 6), (4, 2, 3)):
        table = leaf("t", np.zeros(shape, np.float32))
        assert Gathered.of("e", (4, 6), (table,), rows_of([0], [0])).width == 6
