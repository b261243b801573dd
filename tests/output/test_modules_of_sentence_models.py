"""Promise: modules of sentence-transformers are merged like any part; differences are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from merging import merge, tensors_of, working_in
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

import resumerge

TINY = BertConfig(
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=8,
    vocab_size=24,
    max_position_embeddings=16,
)
LINEAR = (
    "merge_method: linear\n"
    "models: [{model: a, parameters: {weight: 0.5}}, {model: b, parameters: {weight: 0.5}}]\n"
)
KINDS = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}


def write(
    folder: Path,
    seed: int,
    *,
    modules: tuple[str, ...] = ("", "1_Pooling", "2_Dense"),
    pooling: dict[str, Any] | None = None,
    outputs: int = 4,
    pickled: bool = False,
) -> None:
    """Write a model of sentence-transformers with random weights."""
    torch.manual_seed(seed)
    BertModel(TINY).save_pretrained(folder)
    types = [
        {"idx": i, "path": path, "type": f"sentence_transformers.models.{KINDS[path]}"}
        for i, path in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(types))
    for path in modules[1:]:
        (folder / path).mkdir()
    (folder / "1_Pooling/config.json").write_text(
        json.dumps(pooling or {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True})
    )
    if "2_Dense" in modules:
        config = {"in_features": 8, "out_features": outputs, "bias": True}
        (folder / "2_Dense/config.json").write_text(json.dumps(config))
        weights = {"linear.weight": torch.randn(outputs, 8), "linear.bias": torch.randn(outputs)}
        if pickled:
            torch.save(weights, folder / "2_Dense/pytorch_model.bin")
        else:
            save_file(weights, folder / "2_Dense/model.safetensors", metadata={"format": "pt"})


def dense(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "2_Dense/model.safetensors")


def notes(folder: Path, recipe: str = LINEAR) -> list[str]:
    (folder / "r.yaml").write_text(recipe)
    with working_in(folder):
        found: list[str] = resumerge.plan("r.yaml")["notes"]
    return [note for note in found if "tokenizer" not in note]


@pytest.mark.parametrize("pickled", [False, True])
def test_a_dense_layer_is_merged_as_the_rest_is(pickled: bool, tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2, pickled=pickled)
    if pickled:
        theirs = torch.load(tmp_path / "b/2_Dense/pytorch_model.bin")
    else:
        theirs = dense(tmp_path / "b")
    out = merge(tmp_path, LINEAR, tmp_path / "out")
    ours = dense(out)
    assert ours.keys() == {"linear.weight", "linear.bias"}
    for name, tensor in dense(tmp_path / "a").items():
        torch.testing.assert_close(ours[name], (tensor + theirs[name]) / 2)
    assert not [name for name in tensors_of(out) if "linear" in name]
    for file in ("modules.json", "1_Pooling/config.json", "2_Dense/config.json"):
        assert (out / file).read_bytes() == (tmp_path / "a" / file).read_bytes()
    assert BertModel.from_pretrained(out, output_loading_info=True)[1]["missing_keys"] == set()
    assert notes(tmp_path) == []


def test_the_method_of_the_recipe_merges_it(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2)
    recipe = (
        "merge_method: slerp\nbase_model: a\nmodels: [{model: a}, {model: b}]\n"
        "parameters: {t: [{filter: 2_Dense/, value: 1}, {value: 0}]}\n"
    )
    out = merge(tmp_path, recipe, tmp_path / "out")
    torch.testing.assert_close(dense(out), dense(tmp_path / "b"))
    torch.testing.assert_close(tensors_of(out), tensors_of(tmp_path / "a"))


def test_in_stacked_layers_it_is_that_of_the_last_slice(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2)
    recipe = (
        "merge_method: passthrough\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 2]}]\n"
        "  - sources: [{model: b, layer_range: [0, 1]}]\n"
    )
    out = merge(tmp_path, recipe, tmp_path / "out")
    torch.testing.assert_close(dense(out), dense(tmp_path / "b"))


def test_a_model_without_the_layer_has_no_part_in_it_and_it_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2, modules=("", "1_Pooling"))
    out = merge(tmp_path, LINEAR, tmp_path / "out")
    torch.testing.assert_close(dense(out), dense(tmp_path / "a"))
    assert notes(tmp_path) == [
        "b has no weights of 2_Dense: the output has those of a",
        "b has the modules Transformer, Pooling: the output has those of a, Transformer, "
        "Pooling, Dense",
    ]
    (tmp_path / "b" / "modules.json").unlink()  # transformers alone
    assert notes(tmp_path) == ["b has no weights of 2_Dense: the output has those of a"]


def test_where_the_reference_has_no_modules_it_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2)
    (tmp_path / "a" / "modules.json").unlink()
    assert (
        "b is a model of sentence-transformers, and a is not: the output has no "
        in notes(tmp_path)[0]
    )


CLS = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}


@pytest.mark.parametrize(
    ("pooling", "told"),
    [
        (CLS, "pooling cls against mean"),
        ({**CLS, "pooling_mode_mean_tokens": True}, "pooling cls and mean against mean"),
        ({"embedding_dimension": 8, "pooling_mode": "cls"}, "pooling cls against mean"),
        ({"embedding_dimension": 8, "pooling_mode": "mean"}, None),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, None),
    ],
)
def test_other_ways_of_pooling_are_told(
    pooling: dict[str, Any], told: str | None, tmp_path: Path
) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2, pooling=pooling)
    expected = "1_Pooling/config.json of b differs from that of a, which the output has: "
    assert notes(tmp_path) == ([expected + told] if told else [])


def test_equal_ways_of_pooling_of_three_models_are_not_told(tmp_path: Path) -> None:
    """The reference's config is compared with that of each model, and stays as it is."""
    for seed, name in enumerate("abc"):
        write(tmp_path / name, seed, pooling={"pooling_mode": ["cls"], "pooling_mode_max": True})
    models = "models: [{model: a}, {model: b}, {model: c}]\n"
    recipe = f"merge_method: linear\n{models}parameters: {{weight: 1}}\n"
    assert notes(tmp_path, recipe) == []


def test_layers_of_other_sizes_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2, outputs=6)
    with pytest.raises(Exception, match=r"Shapes do not match in tensor 2_Dense/linear"):
        merge(tmp_path, LINEAR, tmp_path / "out")


def test_a_list_of_modules_that_is_none_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 2)
    (tmp_path / "b/modules.json").write_text("{}}")
    with pytest.raises(Exception, match=r"modules\.json is not readable"):
        merge(tmp_path, LINEAR, tmp_path / "out")


def test_of_a_stage_they_are_merged_on(tmp_path: Path) -> None:
    for seed, name in enumerate("abc"):
        write(tmp_path / name, seed)
    recipe = f"name: both\n{LINEAR}---\n" + LINEAR.replace("a,", "both,").replace("b,", "c,")
    out = merge(tmp_path, recipe, tmp_path / "out")
    a, b, c = (dense(tmp_path / name)["linear.weight"] for name in "abc")
    torch.testing.assert_close(dense(out)["linear.weight"], ((a + b) / 2 + c) / 2)
