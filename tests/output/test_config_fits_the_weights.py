"""config.json of the output: its layer count, its dtype, and lists with an entry for each layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from merging import merge, tensors_of, working_in
from tiny_models import LLAMA, llama_shapes, random_tensors, write_family, write_model
from transformers import AutoModelForCausalLM, Qwen2Config

import resumerge
from resumerge.errors import InputError

STACKED = """
merge_method: passthrough
slices:
  - sources: [{model: base, layer_range: [0, 3]}]
  - sources: [{model: code, layer_range: [1, 4]}]
"""


def config_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


def loads(folder: Path) -> Any:
    """Load a model, and check that transformers finds every tensor and no other."""
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model


def test_only_layer_count_and_dtype_differ_from_the_first_models(tmp_path: Path) -> None:
    write_family(tmp_path)
    out = merge(tmp_path, STACKED + "dtype: bfloat16\n", tmp_path / "out")
    expected = {**LLAMA, "num_hidden_layers": 6, "dtype": "bfloat16"}
    assert config_of(out) == expected
    assert loads(out).dtype == torch.bfloat16


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_is_written_under_the_key_that_is_there(key: str, tmp_path: Path) -> None:
    config = {name: value for name, value in LLAMA.items() if name != "dtype"}
    write_family(tmp_path, {**config, key: "float32"})
    recipe = "merge_method: passthrough\nmodels: [{model: math}]\nout_dtype: float16\n"
    found = config_of(merge(tmp_path, recipe, tmp_path / "out"))
    assert {"dtype", "torch_dtype"} & found.keys() == {key}
    assert found[key] == "float16"


def test_text_that_only_json_can_hold_is_kept(tmp_path: Path) -> None:
    """A lone surrogate has no encoding in UTF-8 and stays escaped; other letters are encoded."""
    write_family(tmp_path, {**LLAMA, "odd": "\ud800, é"})
    recipe = "merge_method: passthrough\nmodels: [{model: math}]\n"
    out = merge(tmp_path, recipe, tmp_path / "out")
    assert config_of(out)["odd"] == "\ud800, é"
    assert "\\ud800, é" in (out / "config.json").read_text("utf-8")


SLIDING = ["full_attention", "full_attention", "sliding_attention", "sliding_attention"]


@pytest.fixture
def qwens(tmp_path: Path) -> Path:
    """Write two Qwen2 models with tied embeddings and layers of two kinds, in different orders."""
    for seed, (name, types) in enumerate({"base": SLIDING, "code": SLIDING[::-1]}.items()):
        config = Qwen2Config(
            hidden_size=16,
            intermediate_size=40,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=48,
            tie_word_embeddings=True,
            use_sliding_window=True,
            sliding_window=8,
            layer_types=types,
        )
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / name)
    return tmp_path


def test_the_kind_of_every_layer_moves_with_it(qwens: Path, tmp_path: Path) -> None:
    out = merge(qwens, STACKED, tmp_path / "out")
    assert config_of(out)["layer_types"] == [*SLIDING[:3], *SLIDING[::-1][1:4]]
    model = loads(out)
    kinds = [layer.self_attn.config.layer_types[i] for i, layer in enumerate(model.model.layers)]
    assert kinds == config_of(out)["layer_types"]
    assert model(torch.arange(20).unsqueeze(0)).logits.isfinite().all()


def test_whole_models_keep_their_list(qwens: Path, tmp_path: Path) -> None:
    recipe = "merge_method: slerp\nbase_model: base\nmodels: [{model: code}]\nparameters: {t: 0.5}"
    out = merge(qwens, recipe, tmp_path / "out")
    assert config_of(out)["layer_types"] == SLIDING
    loads(out)


def test_a_head_tied_to_the_embedding_is_not_written(qwens: Path, tmp_path: Path) -> None:
    assert "lm_head.weight" not in tensors_of(qwens / "base")
    out = merge(qwens, STACKED.replace("model: code", "model: base"), tmp_path / "out")
    assert "lm_head.weight" not in tensors_of(out)
    model = loads(out)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_but_is_where_it_comes_from_another_model(qwens: Path, tmp_path: Path) -> None:
    model = loads(merge(qwens, STACKED, tmp_path / "out"))
    of_base, of_code = tensors_of(qwens / "base"), tensors_of(qwens / "code")
    embedding = "model.embed_tokens.weight"
    assert torch.equal(model.model.embed_tokens.weight, of_base[embedding])
    assert torch.equal(model.lm_head.weight, of_code[embedding])


def test_a_tied_model_gives_its_embedding_to_the_head_of_one_that_is_not(tmp_path: Path) -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    first = random_tensors(llama_shapes(LLAMA), seed=1)
    second = random_tensors(llama_shapes(tied), seed=2)
    write_model(tmp_path / "a", first, LLAMA)
    write_model(tmp_path / "b", second, tied)
    recipe = (
        "merge_method: linear\n"
        "models: [{model: a, parameters: {weight: 1}}, {model: b, parameters: {weight: 1}}]\n"
    )
    out = merge(tmp_path, recipe, tmp_path / "out")
    expected = (first["lm_head.weight"] + second["model.embed_tokens.weight"]) / 2
    torch.testing.assert_close(tensors_of(out)["lm_head.weight"], expected)
    loads(out)


@pytest.mark.parametrize("stored", [False, True], ids=["left out", "stored"])
@pytest.mark.parametrize("method", ["linear", "stacked"])
def test_the_head_of_an_untied_model_is_kept_beside_a_tied_first_one(
    method: str, stored: bool, tmp_path: Path
) -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    first = random_tensors(llama_shapes(tied), seed=1)
    second = random_tensors(llama_shapes(LLAMA), seed=2)
    embedding = first["model.embed_tokens.weight"]
    write_model(
        tmp_path / "a", first | ({"lm_head.weight": embedding.clone()} if stored else {}), tied
    )
    write_model(tmp_path / "b", second, LLAMA)
    recipe = {
        "linear": "merge_method: linear\nparameters: {weight: 1}\n"
        "models: [{model: a}, {model: b}]\n",
        "stacked": "merge_method: passthrough\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 2]}]\n"
        "  - sources: [{model: b, layer_range: [2, 4]}]\n",
    }[method]
    out = merge(tmp_path, recipe, tmp_path / "out")
    head = second["lm_head.weight"]
    expected = (embedding + head) / 2 if method == "linear" else head
    torch.testing.assert_close(tensors_of(out)["lm_head.weight"], expected)
    assert config_of(out)["tie_word_embeddings"] is False
    model = loads(out)
    torch.testing.assert_close(model.lm_head.weight.detach(), expected)


def test_a_head_that_a_tied_model_has_on_disk_nevertheless_is_merged(tmp_path: Path) -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    for seed, name in enumerate("ab"):
        tensors = random_tensors(llama_shapes(LLAMA), seed)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        write_model(tmp_path / name, tensors, tied)
    recipe = "merge_method: slerp\nbase_model: a\nmodels: [{model: b}]\nparameters: {t: 0.5}\n"
    merged = tensors_of(merge(tmp_path, recipe, tmp_path / "out"))
    assert torch.equal(merged["lm_head.weight"], merged["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    ("bare", "told"),
    [("ab", "no model has a config.json, so the output has none"), ("b", "b has no config.json")],
)
def test_models_without_a_config_are_merged_and_it_is_told(
    bare: str, told: str, tmp_path: Path
) -> None:
    for seed, name in enumerate("ab"):
        write_model(tmp_path / name, random_tensors(llama_shapes(LLAMA), seed))
        if name in bare:
            (tmp_path / name / "config.json").unlink()
    recipe = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    out = merge(tmp_path, recipe, tmp_path / "out")
    assert (out / "config.json").exists() == (bare == "b")
    (tmp_path / "recipe.yaml").write_text(recipe)
    with working_in(tmp_path):
        assert any(note.startswith(told) for note in resumerge.plan("recipe.yaml")["notes"])


ODD = {
    "no text config": {"text_config": None},
    "a text for a text config": {"text_config": "llama"},
    "a text for the count": {"num_hidden_layers": "4", "layer_types": SLIDING},
    "too large a count": {"num_hidden_layers": 10**12, "layer_types": ["a"]},
    "entries repeated without end": {"attention_types": [[["global", "local"], 10**12]]},
    "entries repeated less than never": {"attention_types": [[["global"], 5], [["local"], -1]]},
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("odd", ["base", "code"])
def test_odd_values_in_a_config_do_not_stop_the_end(name: str, odd: str, tmp_path: Path) -> None:
    """Odd values are refused at the beginning, or the merge is finished."""
    config = {**LLAMA, "layer_types": SLIDING}
    write_family(tmp_path, config)
    (tmp_path / odd / "config.json").write_text(json.dumps({**config, **ODD[name]}))
    try:
        out = merge(tmp_path, STACKED, tmp_path / "out")
    except InputError:
        assert not (tmp_path / "out").exists()
    else:
        assert config_of(out)
