"""Promise: where memory is scarce, pages are dropped that nothing reads again, and no others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_up_plans import LINEAR, llama, plan, tensor, vectors

from resumerge.engine.execute import page_cache
from resumerge.engine.execute.page_cache import PageCache
from resumerge.planning import Plan
from resumerge.planning.plan import Unit
from resumerge.tensors import Gathered, Stacked
from resumerge.tensors.rows import Rows

BLOCK = 4
Dropped = list[tuple[str, int, int]]


class Cache:
    """A page cache of a plan.

    Args:
        found: the plan.
        scarce, room: the governor's values.
    """

    def __init__(self, found: Plan, *, scarce: bool = True, room: int = 0) -> None:
        self.governor = SimpleNamespace(cache_is_scarce=scarce, cache_room=room)

        def named(source: int, file: str) -> str:
            return found.sources[source].ref.name + file.removeprefix("m.safetensors")

        execution: Any = SimpleNamespace(
            plan=found,
            governor=self.governor,
            reader=SimpleNamespace(descriptor=lambda tensor: named(tensor.source, tensor.file)),
            files=SimpleNamespace(descriptor=lambda shard: f"shard {shard}"),
        )
        self.cache = PageCache(execution)


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> Dropped:
    found: Dropped = []
    monkeypatch.setattr(page_cache, "drop_from_cache", lambda *range_: found.append(range_))
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", BLOCK)
    return found


def linear(*sizes: int) -> tuple[Plan, Unit]:
    found = plan(LINEAR, vectors("a", *sizes), vectors("b", *sizes))
    return found, found.units[-1]


def test_of_blocks_that_are_on_disk_output_and_inputs_are_dropped(dropped: Dropped) -> None:
    found, unit = linear(3, 10)
    cache = Cache(found).cache
    cache.finished(unit, range(0, 2))
    before = 4 * 3
    assert dropped == [("shard 0", unit.offset, 32), ("a", before, 32), ("b", before, 32)]
    dropped.clear()
    cache.finished(unit, range(2, 3))
    assert dropped == [
        ("shard 0", unit.offset + 32, 8), ("a", before + 32, 8), ("b", before + 32, 8)
    ]  # fmt: skip


def test_with_plenty_of_memory_nothing_is_dropped(dropped: Dropped) -> None:
    found, unit = linear(100)
    cache = Cache(found, scarce=False)
    cache.cache.finished(unit, range(0, 2))
    cache.cache.passed_over(unit.expression, range(16))
    assert dropped == []


def test_an_input_that_is_read_again_stays(dropped: Dropped) -> None:
    stacked = "merge_method: passthrough\nslices:\n" + 2 * (
        "  - sources: [{model: a, layer_range: [0, 1]}]\n"
    )
    found = plan(stacked, llama("a", 1))
    cache = Cache(found).cache
    first, second = (unit for unit in found.units if unit.name.endswith("up_proj.weight"))
    for unit in (first, second):
        cache.finished(unit, range(unit.blocks))
    assert [file for file, *_ in dropped] == ["shard 0", "shard 0", "a"]


def test_inputs_of_a_scan_go_where_the_tensor_is_too_large_to_stay(dropped: Dropped) -> None:
    found, unit = linear(BLOCK * 40)
    inputs = 2 * 4 * BLOCK * 40
    cache = Cache(found, room=inputs - 1)
    for first in (0, 16):
        cache.cache.passed_over(unit.expression, range(first, first + 16))
    piece = 4 * BLOCK * 16
    assert dropped == [("a", 0, piece), ("b", 0, piece), ("a", piece, piece), ("b", piece, piece)]
    dropped.clear()
    cache.governor.cache_room = inputs
    cache.cache.passed_over(unit.expression, range(16))
    assert dropped == []


def test_a_scan_drops_what_is_read_again_by_another_tensor(dropped: Dropped) -> None:
    """A tensor of this size would not stay in the page cache until then."""
    stacked = "merge_method: linear\nparameters: {weight: 1}\nslices:\n" + 2 * (
        "  - sources: [{model: a, layer_range: [0, 1]}, {model: b, layer_range: [0, 1]}]\n"
    )
    rest = "model.layers.0.mlp.up_proj.weight"
    large = [llama(name, 1, others=[tensor(rest, (40, BLOCK))]) for name in "ab"]
    found = plan(stacked, *large)
    unit = next(unit for unit in found.units if unit.name == rest)
    Cache(found).cache.passed_over(unit.expression, range(16))
    assert [file for file, *_ in dropped] == ["a", "b"]


def test_tensors_whose_rows_are_gathered_go_whole_after_the_last_block(dropped: Dropped) -> None:
    """Any block may read any row of any of the tensors."""
    found, unit = linear(3, 12)
    tables = tuple(source.tensors["t1"] for source in found.sources)
    none = np.zeros(0, np.int64)
    rows = Rows.of(np.array([0, 1, 0]), np.array([0, 1, 2]), 3, (np.zeros(1, np.int64), none, none))
    unit = replace(unit, expression=Gathered.of("t1", (3, 4), tables, rows))
    cache = Cache(replace(found, units=(found.units[0], unit))).cache
    cache.finished(unit, range(0, 2))
    assert dropped == [("shard 0", unit.offset, 32)]
    dropped.clear()
    cache.finished(unit, range(2, 3))
    assert dropped == [("shard 0", unit.offset + 32, 16), ("a", 12, 48), ("b", 12, 48)]


def test_a_result_of_another_width_than_its_inputs(dropped: Dropped) -> None:
    found = plan(LINEAR + "out_dtype: bfloat16\n", vectors("a", 3, 10), vectors("b", 3, 10))
    unit = found.units[-1]
    Cache(found).cache.finished(unit, range(1, 3))
    assert dropped == [("shard 0", unit.offset + 8, 12), ("a", 12 + 16, 24), ("b", 12 + 16, 24)]


def test_members_of_a_tensor_that_is_read_as_one_are_dropped_where_each_is(
    dropped: Dropped,
) -> None:
    found, unit = linear(3, 12)
    members = [
        replace(tensor(f"e{number}", (6,), offset=100 * number), file=f"m.safetensors {number}")
        for number in range(2)
    ]
    unit = replace(unit, expression=Stacked.of("e", (12,), tuple(members)))
    cache = Cache(replace(found, units=(found.units[0], unit))).cache
    cache.finished(unit, range(1, 3))
    assert dropped[1:] == [("a 0", 16, 8), ("a 1", 100, 24)]
