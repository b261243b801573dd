"""Promise: one model, with an adapter or without, keeps its weight files: the same names with the
same tensors, and a file that nothing changes is the same, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from merging import merge, shards_of, tensors_of, working_in
from models_in_files import COPY, FILES, write_adapter, write_in_files
from safetensors.torch import load_file, save_file

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.planning.shards import pack_as_source
from resumerge.recipe import parse_recipe
from resumerge.tensors.target import Target

PLAIN = "merge_method: passthrough\nmodels: [{model: base}]\n"
TOUCHED = ("model-00003-of-00008.safetensors", "model-00006-of-00008.safetensors")
"""The files of layers 1 and 4."""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Write `base` in eight files, and `adapter` for layers 1 and 4."""
    write_adapter(tmp_path / "adapter", write_in_files(tmp_path / "base"), [1, 4])
    return tmp_path


def weight_map(folder: Path) -> Any:
    return json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]


def planned(models: Path, recipe: str, **options: Any) -> Any:
    """Return the document of `plan` for a recipe."""
    (models / "recipe.yaml").write_text(recipe)
    with working_in(models):
        return resumerge.plan("recipe.yaml", state_dir=models / "state", **options)


def test_what_no_adapter_touches_is_the_same_bytes(models: Path) -> None:
    out = merge(models, COPY, models / "out")
    before, after = shards_of(models / "base"), shards_of(out)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {*TOUCHED}
    for name in TOUCHED:
        size = 8 + int.from_bytes(before[name][:8], "little")
        assert after[name][:size] == before[name][:size], "each tensor has its place"
    assert weight_map(out) == weight_map(models / "base")


def test_a_plain_copy_is_all_files(models: Path) -> None:
    assert shards_of(merge(models, PLAIN, models / "out")) == shards_of(models / "base")


def test_names_with_more_digits_are_kept(tmp_path: Path) -> None:
    write_in_files(tmp_path / "base", name="model-{:05}-of-{:06}.safetensors")
    out = merge(tmp_path, PLAIN, tmp_path / "out")
    assert shards_of(out) == shards_of(tmp_path / "base")
    assert {p.name for p in out.glob("*.safetensors")} == {*weight_map(out).values()}


def test_a_size_of_shards_that_is_given_holds(models: Path) -> None:
    out = merge(models, COPY, models / "out", shard_size=20_000)
    assert len(shards_of(out)) != FILES
    again = merge(models, COPY, models / "again")
    assert {k: v.tolist() for k, v in tensors_of(out).items()} == {
        k: v.tolist() for k, v in tensors_of(again).items()
    }


@pytest.mark.parametrize(
    "recipe",
    [
        COPY + "dtype: float32\n",
        "merge_method: linear\nmodels: [{model: base, parameters: {weight: 1}}]\n",
        "merge_method: passthrough\nslices:\n"
        "  - sources: [{model: base, layer_range: [0, 3]}]\n"
        "  - sources: [{model: base, layer_range: [2, 6]}]\n",
    ],
)
def test_another_output_is_packed_anew(recipe: str, models: Path) -> None:
    """No file would be the same: other dtypes, layers that moved, another method."""
    assert [*shards_of(merge(models, recipe, models / "out"))] == ["model.safetensors"]


def test_names_that_loaders_do_not_know_are_not_kept(tmp_path: Path) -> None:
    write_in_files(tmp_path / "base", name="part{}_of_{}.safetensors")
    assert [*shards_of(merge(tmp_path, PLAIN, tmp_path / "out"))] == ["model.safetensors"]


def test_a_file_that_gets_another_tensor_is_packed_anew_and_the_others_stay(
    tmp_path: Path,
) -> None:
    """An adapter gives a tied head a tensor of its own, which no file has."""
    config = {
        "hidden_size": 16, "tie_word_embeddings": True, "vocab_size": 48,
        "num_hidden_layers": 6, "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "intermediate_size": 40, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    }  # fmt: skip
    tensors = write_in_files(tmp_path / "base", config)
    adapter = write_adapter(tmp_path / "adapter", tensors, [2], modules_to_save=["lm_head"])
    file = adapter / "adapter_model.safetensors"
    head = tensors["model.embed_tokens.weight"].float() * 2
    save_file({**load_file(file), "base_model.model.lm_head.weight": head}, file)
    out = merge(tmp_path, COPY, tmp_path / "out")
    before, after = shards_of(tmp_path / "base"), shards_of(out)
    assert after.keys() == before.keys()
    assert weight_map(out).keys() - weight_map(tmp_path / "base").keys() == {"lm_head.weight"}
    assert sum(after[name] == before[name] for name in after) == FILES - 2
    assert len(tensors_of(out)) == len(tensors) + 1


def test_a_file_whose_tensors_change_places_is_no_copy(models: Path) -> None:
    """A file is not copied if two tensors in it, alike in type and shape, exchange their names."""
    with working_in(models):
        found = Session(Options()).plan(parse_recipe(PLAIN))
    one, other = (
        next(u for u in found.units if u.name == f"model.layers.0.{norm}.weight")
        for norm in ("input_layernorm", "post_attention_layernorm")
    )
    assert one.shard == other.shard and found.shards[one.shard].copied is not None
    swapped = {one.name: other.expression, other.name: one.expression}
    targets = [
        Target(
            unit.name,
            unit.dtype,
            unit.shape,
            unit.block_elements,
            swapped.get(unit.name, unit.expression),
            unit.tensors,
        )
        for unit in found.units
    ]
    packed = pack_as_source(found.recipe, found.sources[0], targets)
    assert packed is not None
    assert [shard.copied is None for shard in packed[1]] == [
        shard.number == one.shard for shard in packed[1]
    ]


def test_plan_and_status_count_what_is_copied(models: Path) -> None:
    document = planned(models, COPY)
    before = shards_of(models / "base")
    copied = sum(len(data) for name, data in before.items() if name not in TOUCHED)
    assert document["shards"] == FILES
    assert document["copied"] == {"shards": FILES - 2, "bytes": copied}
    assert document["output_bytes"] == sum(map(len, before.values()))
    merge(models, COPY, models / "out", state_dir=models / "state")
    [run] = resumerge.status(models / "out", state_dir=models / "state")["runs"]
    assert run["shards"] == {"total": FILES, "sealed": FILES, "copied": FILES - 2}
    assert planned(models, COPY, shard_size="1MB")["copied"] == {"shards": 0, "bytes": 0}


def test_every_tensor_of_the_model_has_its_account(models: Path) -> None:
    accounts = planned(models, COPY)["accounts"]["sources"]
    base = next(account for account in accounts if account["model"].endswith("base"))
    assert base["tensors"] == len(weight_map(models / "base"))
    assert not base["unused"]


def test_a_kept_stage_is_resumed_with_its_files(models: Path) -> None:
    """Resuming plans both models as before: the stage with its files, the output packed anew."""
    recipe = f"name: first\n{COPY}---\nmerge_method: linear\nmodels:\n" + "".join(
        f"  - {{model: {name}, parameters: {{weight: 1}}}}\n" for name in ("first", "base")
    )
    out = merge(models, recipe, models / "out", keep=["first"])
    first = shards_of(out / "stages" / "first")
    assert first.keys() == shards_of(models / "base").keys()
    (out / "stages" / "first" / TOUCHED[0]).unlink()
    with working_in(models):
        Session(Options(state_dir=models / "out.state")).resume("out")
    assert shards_of(out / "stages" / "first") == first
