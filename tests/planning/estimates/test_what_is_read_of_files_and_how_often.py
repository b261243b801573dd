"""Promise: a plan lists what is read of its files, and fetched of streamed ones: each range of each
pass, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import LINEAR, remote, staged, tensor, vectors

from resumerge.planning import Plan, Unit, estimate, make_plan
from resumerge.planning.estimates.reads_of_files import FileReads
from resumerge.planning.reads import (
    KEPT_BYTES,
    Read,
    is_kept,
    passes_of_unit,
    reads_of_blocks,
    reads_of_pass,
    reads_once,
)
from resumerge.planning.stage_results.spilled import Materialize, with_spilled
from resumerge.recipe import parse_recipe
from resumerge.sources.types import numbered
from resumerge.tensors import Adapted, Merged, Spilled, Stored, spilled_in
from resumerge.tensors.target import BLOCK_ELEMENTS, BLOCK_RUN_BYTES

RUN = BLOCK_RUN_BYTES // 4
"""Elements that are read at once."""

SIZE = 2 * RUN + BLOCK_ELEMENTS + 5
"""Elements of a tensor of two whole runs and some blocks more, the last of which is not whole."""

TIES = (
    "merge_method: ties\nbase_model: a\nparameters: {weight: 1, density: 0.5}\n"
    "models: [{model: a}, {model: b}]\n"
)
RUNS = [(0, RUN), (RUN, 2 * RUN), (2 * RUN, SIZE)]


def planned(text: str, *sizes: int) -> Plan:
    return staged(text, *(vectors(name, *sizes) for name in "ab"))


def ranges(steps: Iterable[Iterable[Read]]) -> list[list[tuple[int, int, int]]]:
    """Return the reads of each step as (source, first, last)."""
    return [[(stored.source, first, last) for stored, first, last in step] for step in steps]


def both(*runs: tuple[int, int]) -> list[list[tuple[int, int, int]]]:
    return [[(source, *run) for source in (0, 1)] for run in runs]


def test_the_blocks_are_read_run_by_run() -> None:
    [unit] = planned(LINEAR, SIZE).units
    assert ranges(reads_of_blocks(unit)) == both(*RUNS)
    for first in (1, 4, 8, 9):
        start = first * BLOCK_ELEMENTS
        found = ranges(reads_of_blocks(unit, first))
        assert found == both(*((n, min(n + RUN, SIZE)) for n in range(start, SIZE, RUN)))
    assert ranges(reads_of_blocks(unit, unit.blocks)) == []
    [copied] = planned("merge_method: passthrough\nmodels: [{model: a}]\n", SIZE).units
    assert ranges(reads_of_blocks(copied)) == [[(0, *run)] for run in RUNS]
    [empty] = planned(LINEAR, 0).units
    assert ranges(reads_of_blocks(empty)) == []
    assert [*passes_of_unit(empty)][1:] == []


def test_a_sample_is_the_beginning_of_each_block() -> None:
    [unit] = planned(TIES, SIZE).units
    assert isinstance(unit.expression, Merged)
    assert ranges(reads_of_pass(unit.expression, sample=False)) == both(*RUNS)
    found = ranges(reads_of_pass(unit.expression, sample=True))
    starts = [range(at, min(at + RUN, SIZE), BLOCK_ELEMENTS) for at in range(0, SIZE, RUN)]
    sampled = [[(n, n + -(-min(BLOCK_ELEMENTS, SIZE - n) // 16)) for n in run] for run in starts]
    assert found == [[(s, *r) for s in (0, 1) for r in run] for run in sampled]


def passes(unit: Unit) -> list[list[list[tuple[int, int, int]]]]:
    return [ranges(steps) for steps in passes_of_unit(unit)]


def test_a_selection_reads_a_sample_then_all_then_the_blocks() -> None:
    """Reads that are needed last are yielded first, to be fetched ahead as far as there is room."""
    [large] = planned(TIES, SIZE).units
    blocks, *before = passes(large)
    assert blocks == both(*RUNS)
    sampled, whole = before
    assert sampled == ranges(reads_of_pass(large.expression, sample=True))  # type: ignore[arg-type]
    assert whole == both(*RUNS)
    [plain] = planned(LINEAR, SIZE).units
    assert passes(plain) == [both(*RUNS)]


def test_a_result_that_is_used_twice_is_scanned_once() -> None:
    """The results of scans are held, so that another use of the tensor does not scan it again."""
    last = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: s}, "
    text = f"name: s\n{TIES}---\nname: t\n{last}{{model: a}}]\n---\n{last}{{model: t}}]\n"
    [unit] = planned(text, SIZE).units
    _, *before = passes(unit)
    assert len(before) == 2


@pytest.mark.parametrize(
    ("text", "size", "kept"),
    [
        (TIES, BLOCK_ELEMENTS, True),
        (TIES, BLOCK_ELEMENTS + 1, False),
        (LINEAR, BLOCK_ELEMENTS, False),
        (f"name: s\n{LINEAR}---\n{TIES.replace('model: b', 'model: s')}", BLOCK_ELEMENTS, True),
    ],
)
def test_what_one_block_reads_is_kept_for_all_passes(text: str, size: int, *, kept: bool) -> None:
    [unit] = planned(text, size).units
    assert is_kept(unit) == kept
    if kept:
        [only] = passes(unit)
        assert only == ranges(reads_of_blocks(unit))


def test_what_is_large_or_in_a_scratch_file_is_not_kept() -> None:
    [unit] = planned(f"name: s\n{LINEAR}---\n{TIES.replace('model: b', 'model: s')}", 8).units
    spilled = unit.expression.with_children(
        tuple(
            Spilled.of(child, 8) if isinstance(child, Merged) else child
            for child in unit.expression.children()
        )
    )
    assert is_kept(unit) and not is_kept(replace(unit, expression=spilled))
    most = KEPT_BYTES // 8
    for size in (most, most + 1):
        [unit] = planned(TIES, size).units
        one_block = replace(unit, block_elements=size)
        assert is_kept(one_block) == (size == most)


def test_a_scratch_file_is_computed_first_and_then_read_instead() -> None:
    plan = planned(f"name: s\n{LINEAR}---\n{TIES.replace('model: b', 'model: s')}", SIZE)
    [unit] = with_spilled(plan, Materialize.ALWAYS).units
    [spilled] = spilled_in(unit.expression)
    assert ranges(reads_of_pass(spilled, sample=False)) == both(*RUNS)
    alone = [[(0, *run)] for run in RUNS]
    blocks, of_spilled, sampled, whole = passes(unit)
    assert (blocks, of_spilled, whole) == (alone, both(*RUNS), alone)
    assert all(source == 0 for step in sampled for source, *_ in step)


def streamed(text: str, *sizes: int, present: str = "") -> Plan:
    """Return the plan of a recipe for streamed models with a float32 file for each size.

    The files of the model `present` are on this disk.
    """
    recipe = parse_recipe(text)
    sources = {}
    for ref in recipe.models:
        source = remote(ref.name, *sizes)
        files = {
            name: replace(file, size=4 * size, present=ref.name == present)
            for (name, file), size in zip(source.files.items(), sizes)
        }
        sources[ref] = replace(source, ref=ref, files=files, streams=True)
    return make_plan(recipe, numbered(sources), seed=0, shard_size=1 << 30)


def sampled_bytes(size: int) -> int:
    whole, rest = divmod(size, BLOCK_ELEMENTS)
    return 4 * (whole * (BLOCK_ELEMENTS // 16) + -(-rest // 16))


@pytest.mark.parametrize(
    ("text", "size", "fetched"),
    [
        (LINEAR, SIZE, 4 * SIZE),
        (TIES, SIZE, 8 * SIZE + sampled_bytes(SIZE)),
        (TIES, BLOCK_ELEMENTS, 4 * BLOCK_ELEMENTS),
        (LINEAR.replace("linear", "karcher"), SIZE, 8 * SIZE),
        (TIES, BLOCK_ELEMENTS + 1, 8 * (BLOCK_ELEMENTS + 1) + sampled_bytes(BLOCK_ELEMENTS + 1)),
        (
            TIES.replace("ties", "sce").replace("density", "select_topk"),
            SIZE,
            16 * SIZE + sampled_bytes(SIZE),
        ),
    ],
)
def test_a_streamed_file_is_fetched_once_for_each_pass(text: str, size: int, fetched: int) -> None:
    plan = streamed(text, size, 8)
    found = estimate(plan)
    small = 32
    assert found.streamed == {
        (source, file): nbytes
        for source in (0, 1)
        for file, nbytes in (("f0", fetched), ("f1", small))
    }
    assert found.download == 2 * (fetched + small)
    assert found.read == {(s, f): n for s in (0, 1) for f, n in (("f0", 4 * size), ("f1", small))}
    assert found.streamed_of(1) == fetched + small
    assert found.read_of(0) == {"f0": 4 * size, "f1": small}


def test_a_file_that_is_here_is_not_streamed() -> None:
    found = estimate(streamed(LINEAR, SIZE, present="a"))
    assert found.streamed == {(1, "f0"): 4 * SIZE}
    assert (found.download, found.cached) == (4 * SIZE, 4 * SIZE)


def test_one_tensor_that_is_two_inputs_is_fetched_once() -> None:
    """A range that both operands of a merge read at once is downloaded once."""
    plan = streamed(LINEAR, SIZE)
    [unit] = plan.units
    first, _ = unit.expression.children()
    twice = replace(unit, expression=unit.expression.with_children((first, first)))
    found = estimate(replace(plan, units=(twice,)))
    assert found.streamed == {(0, "f0"): 4 * SIZE}


def test_matrices_are_read_once_for_all_blocks_of_all_units() -> None:
    files = ("f0", "f1", "f2")
    base, a, b = (
        replace(tensor(name, shape), file=file)
        for name, shape, file in zip("wab", ((512, 1024), (2, 1024), (512, 2)), files)
    )
    made = Adapted.of("w", base, a, b, 1.0, False, None)
    found = {(stored.name, first, last) for stored, first, last in reads_once([made, base], [])}
    assert found == {("a", 0, 2048), ("b", 0, 1024)}
    source = replace(remote("a", 1, 1, 1), tensors={"w": made}, streams=True)
    recipe = parse_recipe(LINEAR.replace(", {model: b}", ""))
    sources = numbered({ref: replace(source, ref=ref) for ref in recipe.models})
    plan = make_plan(recipe, sources, seed=0, shard_size=1 << 30)
    assert estimate(plan).streamed == {
        (0, name): 4 * size for name, size in zip(files, (512 * 1024, 2048, 1024))
    }
    [unit] = plan.units
    again = replace(unit, number=1, name="again")
    twice = estimate(replace(plan, units=(unit, again))).streamed
    assert twice == {(0, name): 4 * n for name, n in zip(files, (2 * 512 * 1024, 2048, 1024))}


def test_what_steps_read_is_fetched_once() -> None:
    plan = streamed(LINEAR, 100, 8)
    [stored] = {
        node
        for node in plan.nodes()
        if isinstance(node, Stored) and node.source == 0 and node.file == "f1"
    }
    whole: Any = SimpleNamespace(reads=lambda: iter([(stored, 0, 8), (stored, 3, 3)]))
    assert [*reads_once([], [whole])] == [(stored, 0, 8)]
    counter = FileReads(plan.sources)
    for unit in plan.units:
        counter.add(unit, [*unit.expression.nodes()])
    assert counter.streamed([whole])[0, "f1"] == 64
