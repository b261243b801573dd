"""Promise: the disk has room for the shards that are in the folder of the output at once, and for
what lies beside them; the largest unit, and the largest block, are known.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import LINEAR, plan, staged, vectors

from resumerge.host.machine import FREE_FOR_COMPANIONS
from resumerge.planning import Plan, estimate
from resumerge.planning.stage_results.spilled import Materialize, with_spilled
from resumerge.tensors.target import BLOCK_ELEMENTS


@pytest.fixture
def in_shards() -> Plan:
    """Return a plan whose second shard of three is the largest."""
    return plan(LINEAR, *(vectors(name, 50, 500, 20, 30) for name in "ab"), shard_size=200)


def test_without_a_mirror_all_shards_are_there(in_shards: Plan) -> None:
    first, second, third = (shard.nbytes for shard in in_shards.shards)
    assert second > first and second > third
    assert estimate(in_shards).shards_here == first + second + third
    assert estimate(in_shards).output == first + second + third
    for most, expected in ((0, 0), (1, second), (2, second + max(first, third))):
        found = estimate(in_shards, most_shards=most)
        assert found.shards_here == expected
        assert found.disk == expected + FREE_FOR_COMPANIONS
        assert found.output == first + second + third and found.tensors == 4


def test_scratch_files_lie_where_shards_are_made() -> None:
    text = f"name: s\n{LINEAR}---\n{LINEAR.replace('model: b', 'model: s')}"
    whole = staged(text, *(vectors(name, 40, 30, 10) for name in "ab"))
    spilled = with_spilled(whole, Materialize.ALWAYS)
    found = estimate(spilled)
    assert found.scratch == 4 * 70, "those of a unit and of the next"
    assert found.disk == estimate(whole).disk + 4 * 70
    assert estimate(spilled, most_shards=0).disk == FREE_FOR_COMPANIONS, (
        "of tasks on other machines"
    )
    [note] = found.notes
    assert note.startswith("3 tensors of stages are written to scratch files")
    assert estimate(whole).notes == ()


def test_an_adapter_whose_ranks_are_chosen_at_the_end_is_written_twice(in_shards: Plan) -> None:
    for undecided in (True, False):
        adapter: Any = SimpleNamespace(is_undecided=undecided)
        found = estimate(replace(in_shards, adapter=adapter))
        assert found.scratch == in_shards.output_bytes * undecided


def test_the_largest_unit_and_the_largest_block_may_be_of_two() -> None:
    models = [vectors(name, 10, 3 * BLOCK_ELEMENTS, 20) for name in "ab"]
    whole = plan(LINEAR, *models)
    found = estimate(whole)
    assert found.largest.name == "t1" and found.largest_block == 4 * BLOCK_ELEMENTS
    small, large, _ = whole.units
    wide = replace(
        small,
        shape=(2 * BLOCK_ELEMENTS,),
        block_elements=2 * BLOCK_ELEMENTS,
        nbytes=8 * BLOCK_ELEMENTS,
    )
    found = estimate(replace(whole, units=(wide, large)))
    assert found.largest is large and found.largest_block == 8 * BLOCK_ELEMENTS
