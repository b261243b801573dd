"""One call reads several ranges of files, and notices what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_ways import varied
from hypothesis import given
from hypothesis import strategies as st
from merging import working_in
from tiny_models import LLAMA, write_family

from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import Resumable
from resumerge.kernels.hashes import hash_blocks
from resumerge.native import read_ranges
from resumerge.options import Options
from resumerge.planning import estimate
from resumerge.recipe import parse_recipe
from resumerge.sources.reader import SourceReader

CONTENT = np.arange(10_000, dtype=np.uint16)
BYTES = CONTENT.nbytes


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path: Path = tmp_path_factory.mktemp("ranges") / "numbers"
    path.write_bytes(CONTENT.tobytes())
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@varied
@given(
    st.lists(st.tuples(st.integers(0, 9_999), st.integers(1, 10_000)), min_size=1, max_size=5),
    st.data(),
)
def test_each_range_is_where_it_belongs(
    file: int, places: list[tuple[int, int]], data: st.DataObject
) -> None:
    places = [(start, min(length, len(CONTENT) - start)) for start, length in places]
    to = [np.zeros(length + 1, np.uint16) for _, length in places]
    block = data.draw(st.sampled_from([0, 2, 240, 242, 1000, 1 << 20]))
    hashes = read_ranges([(file, 2 * start, x[:-1], block) for (start, _), x in zip(places, to)])
    assert hashes is not None
    for (start, length), found in zip(places, to):
        np.testing.assert_array_equal(found[:length], CONTENT[start : start + length])
        assert found[length] == 0
    for x, found in zip(to, hashes):
        assert found in ((hash_blocks(x[:-1].view(np.uint8).data, block), b"") if block else (b"",))


@pytest.mark.parametrize("block", [0, 1 << 20])
@pytest.mark.parametrize("offset", [BYTES - 2, BYTES, BYTES + 100])
def test_a_file_that_is_too_short_is_noticed(file: int, offset: int, block: int) -> None:
    to = [np.zeros(1000, np.uint16) for _ in range(2)]
    assert not read_ranges([(file, 0, to[0], 0), (file, offset, to[1], block)])


def test_a_file_that_cannot_be_read_is_noticed(tmp_path: Path) -> None:
    write_only = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        assert not read_ranges([(write_only, 0, np.zeros(1, np.uint16), 0)])
    finally:
        os.close(write_only)


@pytest.mark.parametrize(
    "wrong",
    [
        (0, 0, np.zeros(1)),
        (0, -1, np.zeros(1), 0),
        (-1, 0, np.zeros(1), 0),
        (0, 2**63 - 4, np.zeros(1), 0),
        (0, 0, np.zeros((4, 4))[:, 0], 0),
        (0, 0, b"immutable", 0),
        (0, 0, np.zeros(1, object), 0),  # pointers
        (0, 0, "text", 0),
        (0, 0, np.zeros(1), -1),
        (0, 0, np.zeros(1), 2**63),
        (0, 0, np.zeros(1), 0.5),
    ],
)
def test_what_is_no_range_is_refused_before_anything_is_read(file: int, wrong: Any) -> None:
    first = np.zeros(4, np.uint16)
    with pytest.raises((TypeError, ValueError)):
        read_ranges([(file, 2, first, 0), wrong])
    assert not first.any()


def test_what_went_wrong_is_said(tmp_path: Path) -> None:
    """The reader of single tensors names the file that became shorter."""
    write_family(tmp_path, LLAMA)
    recipe = "merge_method: linear\nmodels:\n  - {model: base, parameters: {weight: 1}}\n"
    with working_in(tmp_path):
        plan = Session(Options()).plan(parse_recipe(recipe))
        evaluator = Evaluator(plan, estimate(plan), SourceReader(plan.sources))
        os.truncate(
            "base/model.safetensors", (tmp_path / "base/model.safetensors").stat().st_size - 2
        )
        read = []
        with pytest.raises(Resumable, match=r"model\.safetensors: the file became shorter"):
            for unit in plan.units:
                read.append(len(evaluator.compute(unit, range(1), {})[0]))
    assert len(read) < len(plan.units)
