"""Promise: the matrices of the two tensors that were read last are held, and no others."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from merging import working_in
from reading import evaluation, read
from safetensors.torch import save_file
from tiny_models import write_model

from resumerge.planning import Plan, estimate, make_plan
from resumerge.recipe import parse_recipe
from resumerge.recipe.references import read_reference
from resumerge.sources import Source, open_source
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import numbered
from resumerge.tensors import Adapted
from resumerge.tensors.evaluation import InFile

NAMES = [f"layers.{n}.proj" for n in range(4)]
ROWS, COLUMNS, RANK = 6, 5, 2


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    """Return one model opened with each of two adapters of all its tensors."""
    ones = {f"{name}.weight": torch.zeros(ROWS, COLUMNS) for name in NAMES}
    write_model(tmp_path / "base", ones, {})
    for number, adapter in enumerate(("one", "two"), 1):
        tensors = {}
        for name in NAMES:
            tensors[f"{name}.lora_A.weight"] = torch.ones(RANK, COLUMNS)
            tensors[f"{name}.lora_B.weight"] = torch.full((ROWS, RANK), float(number))
        (tmp_path / adapter).mkdir()
        save_file(tensors, tmp_path / adapter / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "lora_alpha": RANK, "r": RANK}
        (tmp_path / adapter / "adapter_config.json").write_text(json.dumps(config))
    with working_in(tmp_path):
        return [open_source(read_reference(f"base+{name}")) for name in ("one", "two")]


class Reads:
    """A reader of adapted tensors that counts how often each matrix is read."""

    def __init__(self, sources: list[Source]) -> None:
        self.matrices: Counter[str] = Counter()
        self._sources = [source.numbered(number) for number, source in enumerate(sources)]
        self._reader = SourceReader(self._sources)
        plans = (make_plan_of(source) for source in sources)
        self._evaluation = evaluation(
            self, sum(estimate(plan).memory.across_blocks for plan in plans)
        )

    def descriptor(self, tensor: InFile) -> int:
        """Return a file's descriptor, and count a read of an adapter's A."""
        if "lora_A" in tensor.name:
            self.matrices[tensor.name.removesuffix(".lora_A.weight")] += 1
        return self._reader.descriptor(tensor)

    def fill(self, tensor: InFile, offset: int, buffer: memoryview) -> None:
        self._reader.fill(tensor, offset, buffer)

    def read(self, name: str, source: int = 0, start: int = 0, stop: int = ROWS * COLUMNS) -> float:
        """Return the value that all elements ``start:stop`` of a tensor have."""
        tensor = self._sources[source].tensors[f"{name}.weight"]
        assert isinstance(tensor, Adapted)
        found = np.frombuffer(read(self._evaluation, tensor, start, stop), np.float32)
        assert (found == found[0]).all()
        return float(found[0])


def make_plan_of(source: Source) -> Plan:
    recipe = parse_recipe("merge_method: passthrough\nmodels: [{model: a}]\n")
    [ref] = recipe.models
    return make_plan(recipe, numbered({ref: source}), seed=0, shard_size=1 << 30)


def test_a_tensor_that_is_read_range_by_range_reads_its_matrices_once(
    sources: list[Source],
) -> None:
    reads = Reads(sources[:1])
    for start in range(0, ROWS * COLUMNS, 7):
        assert reads.read(NAMES[0], start=start, stop=min(start + 7, ROWS * COLUMNS)) == RANK
    assert reads.matrices == {NAMES[0]: 1}


def test_the_tensor_that_was_read_longest_ago_makes_room(sources: list[Source]) -> None:
    reads = Reads(sources[:1])
    for name in (NAMES[0], NAMES[1], NAMES[0], NAMES[1]):
        reads.read(name)
    assert reads.matrices == {NAMES[0]: 1, NAMES[1]: 1}
    for name in (NAMES[0], NAMES[2], NAMES[0], NAMES[2]):
        reads.read(name)
    assert reads.matrices == {NAMES[0]: 1, NAMES[1]: 1, NAMES[2]: 1}
    reads.read(NAMES[1])
    assert reads.matrices[NAMES[1]] == 2, "of more tensors than two none are held"


def test_each_model_has_the_matrices_of_its_own_adapter(sources: list[Source]) -> None:
    reads = Reads(sources)
    for name in NAMES[:2]:
        assert [reads.read(name, source) for source in (0, 1, 0, 1)] == [2, 4, 2, 4]
    assert reads.matrices == {NAMES[0]: 2, NAMES[1]: 2}
