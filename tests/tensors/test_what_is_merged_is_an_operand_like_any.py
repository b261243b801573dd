"""Promise: a merge of merges has the bytes of merging twice, by way of a file that rounds alike.

The methods vary, and so do their blocks, the ranges, and the adapters or rows in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_plans import plan
from safetensors.torch import save_file

from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.input_hashes import hashed_operands
from resumerge.kernels.hashes import hash_block
from resumerge.methods import METHODS
from resumerge.planning import Plan, estimate
from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.reader import SourceReader
from resumerge.tensors import (
    Adapted,
    Gathered,
    Merged,
    Sliced,
    Spilled,
    Stacked,
    Stored,
    Tensor,
    rounded_input,
)
from resumerge.tensors import merged as merged_module
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.rows import AVERAGE, ZERO, Rows
from resumerge.tensors.target import BLOCK_ELEMENTS, BLOCK_RUN_BYTES

SHAPE = (40, 25)
NUMEL = math.prod(SHAPE)
NAME = "w"
FIRST, SECOND = 100, 75
RUN_BLOCKS = 4
"""Blocks of a run; above, elements of an inner and an outer block, no multiples of each other."""

METHOD = {
    "linear": ({}, {"weight": 0.6}, None),
    "slerp": ({"t": 0.3}, {}, 0),
    "ties": ({}, {"weight": 0.7, "density": 0.4}, 0),
    "dare_ties": ({}, {"weight": 0.7, "density": 0.4}, 0),
    "model_stock": ({}, {}, 0),
}
"""Parameters that are not the defaults, those of each operand, and the number of the base."""


def models(folder: Path, **tensors: Mapping[str, torch.Tensor]) -> list[Source]:
    """Write models to the disk; return them, numbered in their order."""
    found = []
    for number, (name, values) in enumerate(tensors.items()):
        (folder / name).mkdir(parents=True)
        save_file(dict(values), folder / name / "model.safetensors", {"format": "pt"})
        opened = open_source(ModelRef(str(folder / name), str(folder / name)))
        found.append(replace(opened, ref=ModelRef(name, name)).numbered(number))
    return found


def random(seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape or SHAPE, generator=generator).to(dtype)


def merged(
    method: str, operands: Sequence[Tensor], dtype: str, block: int, cast: str | None = None
) -> Merged:
    """Return the merge of tensors of one shape by a method."""
    given, each, base = METHOD[method]
    params = {p.name: p.default for p in METHODS[method].parameters if not p.per_model} | given
    per_operand = tuple({} if number == base else each for number in range(len(operands)))
    inputs = tuple(rounded_input(operand, cast) for operand in operands)
    shape = operands[0].shape
    return Merged(
        name=NAME,
        dtype=dtype,
        shape=shape,
        method=method,
        operands=inputs,
        params=params,
        per_operand=per_operand,
        base=base,
        seed=7,
        block_elements=block,
    )


def evaluated(tensor: Tensor, sources: Sequence[Source], run: int = RUN_BLOCKS) -> bytes:
    """Return the bytes of a tensor as a unit of a plan, computed in runs of that many blocks."""
    found = of(tensor, sources)
    unit, evaluator = found.units[0], Evaluator(found, estimate(found), SourceReader(sources))
    preparation = evaluator.prepare(unit)
    data = [
        bytes(evaluator.compute(unit, range(at, min(at + run, unit.blocks)), preparation)[0])
        for at in range(0, unit.blocks, run)
    ]
    return b"".join(data)


def of(tensor: Tensor, sources: Sequence[Source]) -> Plan:
    """Return a plan of one tensor."""
    recipe = "merge_method: passthrough\nmodels: [{model: " + sources[0].ref.name + "}]\n"
    found = plan(recipe, sources[0])
    block = tensor.block_elements if isinstance(tensor, Merged) else SECOND
    unit = replace(
        found.units[0],
        name=NAME,
        dtype=tensor.dtype,
        shape=tensor.shape,
        nbytes=tensor.nbytes,
        block_elements=block,
        expression=tensor,
    )
    return replace(found, units=(unit,), sources=tuple(sources))


class Stages:
    """The tensors of models, and of the models that are written in between.

    Args:
        folder: the folder for the written models.
    """

    def __init__(self, folder: Path, sources: list[Source]) -> None:
        self._folder, self.sources = folder, sources

    def written(self, tensor: Tensor) -> Stored:
        """Return a tensor after it was computed and written to a file."""
        data = np.frombuffer(evaluated(tensor, self.sources), np.uint8).copy()
        kind = getattr(torch, FLOATS[tensor.dtype])
        values = torch.from_numpy(data).view(kind).view(tensor.shape)
        number = len(self.sources)
        [source] = models(self._folder, **{f"stage{number}": {NAME: values}})
        self.sources.append(source.numbered(number))
        found = self.sources[-1].tensors[NAME]
        assert isinstance(found, Stored)
        return found


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    tensors = {name: {NAME: random(seed)} for seed, name in enumerate("abcd")}
    return Stages(tmp_path, models(tmp_path, **tensors))


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs short: a few blocks of float32."""
    for place in ("tensors.merged", "planning.estimates.memory"):
        monkeypatch.setattr(f"resumerge.{place}.BLOCK_RUN_BYTES", RUN_BLOCKS * FIRST * 4)


def operands(stages: Stages) -> list[Tensor]:
    return [source.tensors[NAME] for source in stages.sources]


@pytest.mark.parametrize("dtype", ["BF16", "F32", "F16"])
@pytest.mark.parametrize("outer", METHOD)
@pytest.mark.parametrize("inner", METHOD)
def test_a_method_over_the_result_of_a_method(
    stages: Stages, inner: str, outer: str, dtype: str
) -> None:
    """The result of the first method is rounded to its own dtype, as in a file."""
    a, b, c, d = operands(stages)
    three = [a, b, c]
    first = merged(inner, three[:2] if inner == "slerp" else three, dtype, FIRST)

    def second(of_first: Tensor) -> Merged:
        inputs = [d, of_first] if outer == "slerp" else [d, of_first, a]
        return merged(outer, inputs, "BF16", SECOND)

    nested = evaluated(second(first), stages.sources)
    assert nested == evaluated(second(stages.written(first)), stages.sources)
    assert nested == evaluated(second(first), stages.sources, run=1), "whatever the runs"


def test_three_stages_each_with_a_rounding_of_its_own(stages: Stages) -> None:
    a, b, c, d = operands(stages)
    first = merged("ties", [a, b, c], "BF16", FIRST)
    second = merged("linear", [first, d], "F32", SECOND, cast="float16")
    third = merged("dare_ties", [a, second, first], "BF16", 64, cast="float16")
    nested = evaluated(third, stages.sources)
    one = stages.written(first)
    two = stages.written(merged("linear", [one, d], "F32", SECOND, cast="float16"))
    assert nested == evaluated(
        merged("dare_ties", [a, two, one], "BF16", 64, cast="float16"), stages.sources
    )


def test_adapters_rows_and_stacks_of_what_is_merged(stages: Stages, tmp_path: Path) -> None:
    a, b, c, d = operands(stages)
    matrices = {"A": random(9, 3, SHAPE[1]), "B": random(10, SHAPE[0], 3)}
    [adapter] = models(tmp_path / "more", adapter=matrices)
    number = len(stages.sources)
    stages.sources.append(adapter.numbered(number))
    low = [stages.sources[number].tensors[name] for name in "AB"]
    members = (np.array([0, 2]), np.array([0, 1]), np.array([3, 9]))
    origins = np.array([0, 1, 0, ZERO, AVERAGE])
    rows = Rows.of(origins, np.array([30, 2, 31, 0, 0]), 5, members)

    def tensors(first: Tensor) -> Iterator[Tensor]:
        yield Adapted.of(NAME, first, low[0], low[1], 0.5, False, None)
        yield Gathered.of(NAME, (5, SHAPE[1]), (first, b), rows)
        yield Stacked.of(NAME, (3 * SHAPE[0], SHAPE[1]), (c, first, d))

    first = merged("ties", [a, b, c], "BF16", FIRST)
    for nested, by_file in zip(tensors(first), tensors(stages.written(first)), strict=True):
        for outer in (nested, merged("linear", [nested, nested], "F32", SECOND)):
            inputs = (by_file.exact, by_file.exact)
            twice = replace(outer, operands=inputs) if isinstance(outer, Merged) else by_file
            found = evaluated(outer, stages.sources)
            assert found == evaluated(twice, stages.sources)


def test_what_is_read_again_is_hashed_as_it_was(stages: Stages) -> None:
    a, b, c, d = operands(stages)
    tensor = merged("linear", [merged("ties", [a, b, c], "BF16", FIRST), d], "BF16", SECOND)
    found = of(tensor, stages.sources)
    [unit] = found.units
    files = {(n, "model.safetensors") for n in range(3)}
    assert hashed_operands(found, unit) == {0: files, 1: {(3, "model.safetensors")}}
    evaluator = Evaluator(found, estimate(found), SourceReader(stages.sources))
    preparation = evaluator.prepare(unit)
    _, hashes = evaluator.compute(unit, range(unit.blocks), preparation)
    other = Evaluator(found, estimate(found), SourceReader(stages.sources))
    again = [other.input_hashes(unit, index, [0, 1]) for index in range(unit.blocks)]
    assert b"".join(again) == hashes
    data = evaluated(tensor.operands[0], stages.sources)
    assert hashes[:16] == hash_block(data[: 2 * SECOND])


@pytest.mark.parametrize("hashed", [True, False])
def test_inputs_are_hashed_as_they_are_read_and_only_those_that_are_asked_for(
    stages: Stages, hashed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs are read block by block to be hashed while they are in the processor's cache."""
    found = of(merged("linear", operands(stages), "BF16", SECOND), stages.sources)
    [unit] = found.units
    if not hashed:
        found = replace(found, sources=tuple(replace(s, kind="hub") for s in found.sources))
    asked, reading = set(), merged_module.read_ranges

    def noting(places: list[tuple[int, int, np.ndarray, int]]) -> object:
        asked.update(nbytes for *_, nbytes in places)
        return reading(places)

    monkeypatch.setattr(merged_module, "read_ranges", noting)
    evaluator = Evaluator(found, estimate(found), SourceReader(stages.sources))
    _, hashes = evaluator.compute(unit, range(unit.blocks), {})
    assert asked == {2 * SECOND if hashed else 0}
    assert len(hashes) == (16 * 4 * unit.blocks if hashed else 0)


def test_whole_blocks_are_computed_into_what_is_read_and_nothing_beside(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading parts of blocks takes a buffer of the blocks around them."""
    tensor = merged("linear", operands(stages), "BF16", FIRST)
    expected = evaluated(tensor, stages.sources)[: 2 * FIRST]
    monkeypatch.setattr(Merged, "_read_parts", None)
    assert evaluated(Sliced.of("first", (FIRST,), tensor), stages.sources) == expected


@pytest.mark.parametrize(("dtype", "blocks"), [("F32", 4), ("BF16", 8)])
def test_four_mebibytes_of_the_widest_operand_are_read_at_once(dtype: str, blocks: int) -> None:
    narrow, wide = (Stored("w", kind, SHAPE, "f", 0) for kind in ("BF16", dtype))
    tensor = merged("linear", [narrow, wide], "BF16", BLOCK_ELEMENTS)
    assert tensor.blocks_at_once(BLOCK_ELEMENTS, BLOCK_RUN_BYTES) == blocks


@pytest.mark.usefixtures("short_runs")
def test_what_a_scratch_file_is_written_from_counts_in_the_memory(stages: Stages) -> None:
    a, b, c, d = operands(stages)
    inner = merged("ties", [a, b, c], "BF16", FIRST)
    nested, spilled = (
        of(merged("linear", [operand, d], "BF16", SECOND), stages.sources)
        for operand in (inner, Spilled.of(inner, FIRST))
    )
    more = estimate(spilled).memory.blocks(1) - estimate(nested).memory.blocks(1)
    run = spilled.units[0].blocks_at_once(RUN_BLOCKS * FIRST * 4) * SECOND
    assert more == 2 * run


@pytest.mark.usefixtures("short_runs")
def test_each_stage_counts_in_the_memory_and_its_reductions_do(stages: Stages) -> None:
    a, b, c, d = operands(stages)
    inner = merged("ties", [a, b, c], "BF16", FIRST)
    flat, nested = (
        of(merged("linear", [operand, d], "BF16", SECOND), stages.sources) for operand in (a, inner)
    )
    run = 2 * RUN_BLOCKS * FIRST  # twice as many blocks, of half the width
    one = inner.computing_bytes(run) + 2 * run
    assert estimate(nested).memory.blocks(1) - estimate(flat).memory.blocks(1) == pytest.approx(
        one, abs=2
    )
    assert estimate(nested).memory.need(1).shared == METHODS["ties"].statistics_bytes(inner.context)
    assert estimate(flat).memory.need(1).shared == 0


@pytest.mark.usefixtures("short_runs")
def test_buffers_are_bounded_by_the_depth_of_the_tree(stages: Stages) -> None:
    """Stages that are computed one after the other use the same buffers."""
    a, b, *_ = operands(stages)
    pairs = [merged("linear", [a, b], "F32", FIRST) for _ in range(6)]
    found = of(merged("linear", pairs, "F32", FIRST), stages.sources)
    evaluator = Evaluator(found, estimate(found), SourceReader(stages.sources))
    evaluator.compute(found.units[0], range(RUN_BLOCKS), {})
    buffers = evaluator._buffers._local.buffers
    held = sum(buffer.nbytes for buffer in buffers.values())
    run = RUN_BLOCKS * FIRST
    assert held == 4 * run + 6 * 4 * run + 2 * 2 * run, "out, six operands, two of one of them"
