"""Rows gathered from several tensors are what indexing gives, however the reading is split."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from memory_growth import measure_growth
from merging import merge, shards_of
from reading import evaluation, read
from safetensors.torch import save_file
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model
from token_models import write_relatives
from torch import Tensor

from resumerge.recipe import ModelRef
from resumerge.sources import open_source
from resumerge.sources.reader import SourceReader
from resumerge.tensors import Gathered
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO, Rows

WIDTH, HEIGHT = 5, 12
DTYPES = (torch.float32, torch.bfloat16, torch.float32)


class Tables:
    """Three tensors on disk, one of another dtype, and their reader."""

    def __init__(self, folder: Path) -> None:
        self.values: list[Tensor] = []
        sources = []
        for number, dtype in enumerate(DTYPES):
            generator = torch.Generator().manual_seed(number)
            values = torch.randn(HEIGHT, WIDTH, generator=generator).to(dtype)
            (folder / f"{number}").mkdir()
            save_file({"e": values}, folder / f"{number}" / "model.safetensors")
            path = str(folder / f"{number}")
            sources.append(open_source(ModelRef(path, path)))
            self.values.append(values.float())
        numbered = [source.numbered(number) for number, source in enumerate(sources)]
        self.tables = tuple(source.tensors["e"] for source in numbered)
        self.evaluation = evaluation(SourceReader(numbered))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("tables"))


ROWS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, ZERO, AVERAGE]), st.integers(0, HEIGHT - 1)),
    min_size=1,
    max_size=40,
)


@given(rows=ROWS, padding=st.integers(0, 3), cuts=st.lists(st.integers(0, 300), max_size=6))
def test_any_rows_cut_anywhere(
    tables: Tables, rows: list[tuple[int, int]], padding: int, cuts: list[int]
) -> None:
    expected, origins, firsts, members = [], [], [], []
    for origin, row in rows:
        origins.append(origin)
        firsts.append(len(members) if origin == AVERAGE else row)
        if origin == AVERAGE:
            other = (row + 1) % HEIGHT
            members.append([(0, row), (1, other)])
            expected.append((tables.values[0][row].double() + tables.values[1][other]) / 2)
        else:
            expected.append(torch.zeros(WIDTH) if origin == ZERO else tables.values[origin][row])
    wanted = torch.stack([row.float() for row in expected])
    wanted = torch.cat([wanted, wanted.double().mean(0).float().expand(padding, WIDTH)])
    flat = [member for pair in members for member in pair]
    found_rows = Rows.of(
        np.array([*origins, *[MEAN] * padding]),
        np.array([*firsts, *[0] * padding]),
        len(rows),
        (
            np.arange(len(members) + 1) * 2,
            np.array([origin for origin, _ in flat], np.int64),
            np.array([row for _, row in flat], np.int64),
        ),
    )
    gathered = Gathered.of("e", tuple(wanted.shape), tables.tables, found_rows)
    assert gathered.width == WIDTH
    total = wanted.numel()
    places = sorted({0, total, *(cut % total for cut in cuts)})
    parts = []
    for start, stop in pairwise(places):
        parts.append(read(tables.evaluation, gathered, start, stop))
    assert b"".join(parts) == wanted.numpy().tobytes()


def test_consecutive_rows_are_one_run() -> None:
    origins = np.array([0, 0, 0, 1, 1, 0, ZERO, ZERO, MEAN, MEAN])
    firsts = np.array([4, 5, 6, 7, 8, 9, 0, 3, 0, 0])
    none = np.zeros(0, np.int64)
    rows = Rows.of(origins, firsts, 8, (np.zeros(1, np.int64), none, none))
    assert rows.starts.tolist() == [0, 3, 5, 6, 8]
    assert rows.as_json()["runs"] == 5 and rows.as_json()["count"] == 10


def test_the_checksum_tells_maps_apart() -> None:
    none = np.zeros(0, np.int64)
    empty = (np.zeros(1, np.int64), none, none)
    checksums = {
        Rows.of(np.zeros(3, np.int64), np.array(firsts), 3, empty).as_json()["checksum"]
        for firsts in ([0, 1, 2], [0, 2, 1], [1, 2, 3])
    }
    assert len(checksums) == 3


def test_the_checksum_tells_averages_of_other_members_apart() -> None:
    origins, firsts = np.array([AVERAGE]), np.zeros(1, np.int64)
    checksums = {
        Rows.of(
            origins, firsts, 1, (np.array([0, end]), np.array(tables), np.array(rows))
        ).as_json()["checksum"]
        for end, tables, rows in (
            (2, [0, 1], [5, 5]),
            (2, [0, 2], [5, 5]),
            (2, [0, 1], [5, 6]),
            (1, [0, 1], [5, 5]),
        )
    }
    assert len(checksums) == 4


def test_the_same_bytes_whatever_the_threads(tmp_path: Path) -> None:
    write_relatives(tmp_path, "llama")
    models = ", ".join(f"{{model: llama-{letter}}}" for letter in "abc")
    recipe = (
        f"merge_method: ties\nbase_model: llama-a\nmodels: [{models}]\n"
        "parameters: {weight: 1, density: 0.5}\n"
        "tokenizer: {source: union, pad_to_multiple_of: 64}\n"
    )
    made = [
        shards_of(merge(tmp_path, recipe, tmp_path / f"{threads}", threads=threads))
        for threads in (1, 3)
    ]
    assert made[0] == made[1]


def test_the_estimate_counts_maps_and_tokenizers(tmp_path: Path) -> None:
    """A process of its own merges a large vocabulary, which one model has in reverse order."""
    recipe = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    for count in (100, 60_000):
        tokens = [f"token{number}" for number in range(count)]
        config = {**LLAMA, "num_hidden_layers": 1, "vocab_size": len(tokens)}
        for seed, name in enumerate("ab"):
            folder = tmp_path / f"{name}{count}"
            write_model(folder, random_tensors(llama_shapes(config), seed), config)
            vocab = dict(zip(tokens[:: 1 - 2 * seed], range(len(tokens))))
            model = {"type": "BPE", "vocab": vocab, "merges": [["to", "ken"]] * len(tokens)}
            (folder / "tokenizer.json").write_text(json.dumps({"model": model}))

    def of(count: int, more: str) -> str:
        return recipe.replace("a}", f"a{count}}}").replace("b}", f"b{count}}}") + more

    aligned = "tokenizer_source: base\n"
    plain = measure_growth(tmp_path, of(100, ""), of(60_000, ""))
    base = measure_growth(tmp_path, of(100, aligned), of(60_000, aligned))
    assert base.predicted > plain.predicted + 24 * 60_000
    assert base.measured <= base.predicted
