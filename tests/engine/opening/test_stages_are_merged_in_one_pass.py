"""Promise: a recipe of several documents gives the bytes of one merge after the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_mergekit import MERGEKIT, assert_near, run_mergekit_multi
from merging import merge, shards_of, tensors_of, working_in
from safetensors.torch import save_file
from stage_recipes import RECIPES, merge_stages, write_adapter, write_models
from tokenizers import Tokenizer

import resumerge
from resumerge.errors import InputError

BESIDE_THE_WEIGHTS = ("config.json", "tokenizer.json", "tokenizer_config.json")
IN_ORDER = {name: text for name, text in RECIPES.items() if name != "in any order"}


ADAPTED = (
    "name: first\nmerge_method: linear\ndtype: float32\nmodels:\n"
    "  - {model: ./math, parameters: {weight: 0.7}}\n"
    "  - {model: ./code+./lora, parameters: {weight: 0.4}}\n"
    "---\nmerge_method: ties\nbase_model: ./base\ndtype: float32\nmodels:\n"
    "  - {model: first+./lora, parameters: {weight: 0.7, density: 0.5}}\n"
    "  - {model: first, parameters: {weight: 0.4, density: 0.5}}\n"
)


MODELS = (
    "models: [{{model: {}, parameters: {{weight: 1}}}}, {{model: {}, parameters: {{weight: 1}}}}]\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_models(tmp_path_factory.mktemp("models"))
    write_adapter(folder / "lora")
    return folder


@pytest.mark.parametrize("name", IN_ORDER)
def test_the_same_bytes_as_one_merge_after_the_other(
    name: str, models: Path, tmp_path: Path
) -> None:
    ours = merge(models, RECIPES[name], tmp_path / "out")
    written = merge_stages(models, RECIPES[name], tmp_path / "stages")
    assert shards_of(ours) == shards_of(written)
    spilled = merge(models, RECIPES[name], tmp_path / "spilled", materialize="always")
    assert shards_of(spilled) == shards_of(written)
    for file in BESIDE_THE_WEIGHTS:
        assert (ours / file).read_text() == (written / file).read_text(), file


def test_a_stage_takes_an_adapter_as_any_model(models: Path, tmp_path: Path) -> None:
    ours = merge(models, ADAPTED, tmp_path / "out")
    assert shards_of(ours) == shards_of(merge_stages(models, ADAPTED, tmp_path / "stages"))


def test_stages_of_weight_files(tmp_path: Path) -> None:
    """Weight files have no config.json; tensors of whole numbers are those of the first file."""
    draw = torch.Generator().manual_seed(0)
    for number, name in enumerate("abc"):
        tensors = {f"blocks.{k}.weight": torch.randn(40, 30, generator=draw) for k in range(3)}
        save_file({**tensors, "steps": torch.arange(4) + number}, tmp_path / f"{name}.safetensors")
    text = (
        "name: first\nmerge_method: linear\nmodels:\n"
        "  - {model: a.safetensors, parameters: {weight: 0.7}}\n"
        "  - {model: b.safetensors, parameters: {weight: 0.4}}\n"
        "---\nmerge_method: linear\nmodels:\n"
        "  - {model: first, parameters: {weight: 0.7}}\n"
        "  - {model: c.safetensors, parameters: {weight: 0.4}}\n"
    )
    ours = merge(tmp_path, text, tmp_path / "out")
    assert tensors_of(ours)["steps"].tolist() == [0, 1, 2, 3]
    written = merge_stages(tmp_path, text, tmp_path / "stages")
    assert shards_of(ours) == shards_of(written)
    with working_in(tmp_path):
        notes = resumerge.plan("out.yaml")["notes"]
    differing = "1 tensor of whole numbers, not the same in all models, taken from a.safetensors"
    assert next(n for n in notes if "whole numbers" in n) == f"first: {differing}: steps"
    assert notes.count("tensors are matched by name") == 1
    assert len(notes) == len(set(notes))


def test_stages_that_use_each_other_too_often_are_refused(models: Path, tmp_path: Path) -> None:
    """Each stage uses the one before twice, so that forty of them are 2^40 merges."""
    texts = ["name: stage0\nmerge_method: linear\n" + MODELS.format("./math", "./code")]
    for k in range(1, 40):
        before = f"stage{k - 1}"
        texts.append(
            f"name: half{k}\nmerge_method: linear\n" + MODELS.format(before, "./base") + "---\n"
            f"name: stage{k}\nmerge_method: linear\n" + MODELS.format(before, f"half{k}")
        )
    with pytest.raises(InputError, match="nested too deeply") as caught:
        merge(models, "---\n".join(texts), tmp_path / "out")
    assert caught.value.problems[0].line
    assert not (tmp_path / "out").exists()


def test_documents_may_stand_in_any_order(models: Path, tmp_path: Path) -> None:
    ours = merge(models, RECIPES["in any order"], tmp_path / "out")
    in_order = "---\n".join(reversed(RECIPES["in any order"].split("---\n")))
    assert shards_of(ours) == shards_of(merge_stages(models, in_order, tmp_path / "stages"))


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
def test_the_same_weights_as_mergekit_multi(models: Path, tmp_path: Path) -> None:
    run_mergekit_multi(models, {_file(n): text for n, text in RECIPES.items()})
    for name, text in RECIPES.items():
        out, beside = merge(models, text, tmp_path / name), models / f"{_file(name)}.mergekit"
        ours, theirs = tensors_of(out), tensors_of(beside)
        assert _facts(out) == _facts(beside), name
        if "tokenizer" in text:
            rows, expected_rows = _vocabulary(out), _vocabulary(beside)
            assert rows.keys() == expected_rows.keys(), name
            for table in ("model.embed_tokens.weight", "lm_head.weight"):
                ours[table] = ours[table][[rows[word] for word in sorted(rows)]]
                theirs[table] = theirs[table][[expected_rows[word] for word in sorted(rows)]]
        # Of the largest: mergekit's roundings.
        assert_near(ours, theirs, 2.0**-7 if "float16" in text else 1e-6)


def _file(name: str) -> str:
    return name.replace(" ", "_")


def _facts(model: Path) -> dict[str, Any]:
    """Return the entries of config.json that a merge decides."""
    config = json.loads((model / "config.json").read_text())
    dtype = config.get("dtype", config.get("torch_dtype"))
    return {"dtype": dtype, **{key: config[key] for key in ("num_hidden_layers", "vocab_size")}}


def _vocabulary(model: Path) -> dict[str, int]:
    """Return the number of every token."""
    return dict(Tokenizer.from_file(str(model / "tokenizer.json")).get_vocab())
