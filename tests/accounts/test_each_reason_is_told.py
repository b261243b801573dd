"""Each reason why a tensor is not used is reported for exactly the tensors that it concerns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from accounted import (
    CONFIG,
    MLP,
    SHAPES,
    accounts,
    mixture_of,
    told,
    write,
    write_adapter,
    write_tokenizer,
)
from safetensors.numpy import load_file, save_file
from tiny_models import llama_shapes

from resumerge.accounts import Accounts
from resumerge.tensor_uses import HARMLESS, UnusedReason

EMBEDDING, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
BOTH = "merge_method: linear\nparameters: {weight: 0.5}\nmodels: [{model: a}, {model: b}]\n"
LAST = "model.layers.1.mlp.down_proj"
LAYER = [name.split(".", 3)[3] for name in SHAPES if name.startswith("model.layers.0.")]


def layers(*numbers: int) -> set[str]:
    return {f"model.layers.{number}.{rest}" for number in numbers for rest in LAYER}


def computed(models: Path) -> Accounts:
    write(models / "a")
    write(models / "b", {**SHAPES, "model.layers.0.self_attn.rotary_emb.inv_freq": (2,)})
    return accounts(models, BOTH)


def tied(models: Path) -> Accounts:
    config = {**CONFIG, "tie_word_embeddings": True}
    write(models / "a", llama_shapes(config), config)
    write(models / "b", SHAPES, config)
    return accounts(models, BOTH)


SLICES = """
merge_method: passthrough
slices:
  - sources: [{model: a, layer_range: [0, 1]}]
  - sources: [{model: b, layer_range: [0, 2]}]
  - sources: [{model: c, layer_range: [1, 2]}]
"""


def slices(models: Path) -> Accounts:
    for name in "abc":
        write(models / name)
    return accounts(models, SLICES)


MODULES = """
merge_method: linear
base_model: a
parameters: {weight: 0.5}
modules:
  text_decoder:
    models: [{model: a}, {model: b}]
"""
VISION = {f"vision_tower.layers.{layer}.fc.weight": (4, 4) for layer in range(3)}


def modules(models: Path) -> Accounts:
    config = {
        "model_type": "llava",
        "text_config": {"num_hidden_layers": 2, "vocab_size": 48},
        "vision_config": {"num_hidden_layers": 3},
    }
    for name in "ab":
        text = {f"language_model.{key}": shape for key, shape in SHAPES.items()}
        write(models / name, {**text, **VISION}, config)
    return accounts(models, MODULES)


def base_alone(models: Path) -> Accounts:
    for name in "abc":
        write(models / name)
    return accounts(models, "merge_method: passthrough\nbase_model: c\nmodels: [{model: a}]\n")


def tokenizer(models: Path) -> Accounts:
    for name in "abc":
        write(models / name)
        write_tokenizer(models / name, 48)
    return accounts(models, f"{BOTH}tokenizer: {{source: c}}\n")


def no_place(models: Path) -> Accounts:
    write(models / "a")
    write(models / "b", {**SHAPES, "value_head.weight": (1, 8)})
    return accounts(models, BOTH)


def unshared(models: Path) -> Accounts:
    write(models / "a", {"x": (4,), "y": (4,)}, None)
    write(models / "b", {"x": (4,), "z": (4,)}, None)
    return accounts(models, BOTH, tensor_intersection=True)


def others(models: Path) -> Accounts:
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")]
    for name in "abc":
        write(models / name, config={**CONFIG, "architectures": ["LlamaModel"]})
        has = modules if name != "c" else modules[:2]
        written = [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (path, kind) in enumerate(has)
        ]
        (models / name / "modules.json").write_text(json.dumps(written))
        for path, kind in has[1:]:
            (models / name / path).mkdir()
            (models / name / path / "config.json").write_text("{}")
            if kind == "Dense":
                dense = {"linear.weight": np.ones((4, 8), np.float32)}
                save_file(dense, models / name / path / "model.safetensors")
    return accounts(models, BOTH.replace("{model: b}", "{model: b}, {model: c}"))


def whole_numbers(models: Path) -> Accounts:
    for name in "ab":
        write(models / name, counts=np.arange(4))
    return accounts(models, BOTH)


ADAPTED = "merge_method: passthrough\nmodels: [{model: a+l}]\n"


def replaced(models: Path) -> Accounts:
    write(models / "a")
    write_adapter(models / "l", {HEAD: SHAPES[HEAD]}, modules_to_save=["lm_head"])
    return accounts(models, ADAPTED)


def classifier(models: Path) -> Accounts:
    write(models / "a", config={**CONFIG, "architectures": ["LlamaForCausalLM"]})
    pair = {
        "model.layers.0.mlp.up_proj.lora_A.weight": (1, 8),
        "model.layers.0.mlp.up_proj.lora_B.weight": (16, 1),
    }
    write_adapter(
        models / "l",
        {**pair, "score.weight": (3, 8)},
        modules_to_save=["score"],
        task_type="SEQ_CLS",
    )
    return accounts(models, ADAPTED)


def not_loaded(models: Path) -> Accounts:
    write(models / "a")
    head = {
        "lm_head.modules_to_save.default.weight": SHAPES[HEAD],
        "lm_head.original_module.weight": SHAPES[HEAD],
    }
    write_adapter(models / "l", head, modules_to_save=["lm_head"])
    return accounts(models, ADAPTED)


def extracted(models: Path) -> Accounts:
    config = {**CONFIG, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    write(models / "a", mixture_of(3), {**config, "num_local_experts": 3})
    recipe = "merge_method: passthrough\nmodels: [{model: a}]\nextract_expert: 1\n"
    return accounts(models, recipe)


def adapter(models: Path) -> Accounts:
    """Return the accounts of an adapter without one layer, of a model with the head of its base."""
    write(models / "a")
    write(models / "other", **{HEAD: load_file(models / "a/model.safetensors")[HEAD]})
    recipe = "extract_lora: {model: other, exclude: ['layers.0']}\nbase_model: a\n"
    return accounts(models, recipe)


MIXTURE = "base_model: a\ngate_mode: random\nexperts: [{source_model: b}, {source_model: c}]\n"


def mixture(models: Path) -> Accounts:
    for name in "abc":
        write(models / name)
    return accounts(models, MIXTURE)


def mlps(*numbers: int) -> set[str]:
    return {f"model.layers.{n}.mlp.{matrix}.weight" for n in numbers for matrix in MLP}


ROUTERS = {f"model.layers.{layer}.block_sparse_moe.gate.weight" for layer in range(2)}
OTHER = {name for name in mixture_of(3) if ".experts." in name and ".experts.1." not in name}
TEXT = {f"language_model.{name}" for name in SHAPES}


def quantised(models: Path) -> Accounts:
    write(models / "a")
    write(models / "b")
    path = models / "b" / "model.safetensors"
    tensors = load_file(path)
    codes = tensors[f"{LAST}.weight"].round().astype(np.int8)
    tensors |= {f"{LAST}.weight": codes, f"{LAST}.weight_scale": np.ones((1, 1), np.float32)}
    tensors |= {f"{LAST}.input_scale": np.ones(1, np.float32)}
    save_file(tensors, path)
    return accounts(models, BOTH)


CASES = [
    (UnusedReason.COMPUTED, computed, {"b": {"model.layers.0.self_attn.rotary_emb.inv_freq"}}),
    (UnusedReason.TIED, tied, {"b": {HEAD}}),
    (UnusedReason.REPLACED, replaced, {"a": {HEAD}}),
    (UnusedReason.REPLACED, classifier, {"a": {HEAD}}),
    (
        UnusedReason.NOT_LOADED,
        not_loaded,
        {"l": {"base_model.model.lm_head.original_module.weight"}},
    ),
    (UnusedReason.TOKENIZER, tokenizer, {"c": set(SHAPES)}),
    (UnusedReason.QUANTISATION, quantised, {"b": {f"{LAST}.input_scale"}}),
    (UnusedReason.NOT_MERGED, base_alone, {"c": set(SHAPES)}),
    (UnusedReason.NOT_CHOSEN, slices, {"a": layers(1), "c": layers(0)}),
    (UnusedReason.NOT_CHOSEN, extracted, {"a": OTHER}),
    (
        UnusedReason.FROM_ANOTHER,
        slices,
        {"a": {HEAD, NORM}, "b": {EMBEDDING, HEAD, NORM}, "c": {EMBEDDING}},
    ),
    (UnusedReason.FROM_ANOTHER, modules, {"b": set(VISION)}),
    (UnusedReason.FROM_ANOTHER, others, {"b": {"2_Dense/linear.weight"}}),
    (UnusedReason.FROM_ANOTHER, whole_numbers, {"b": {"counts"}}),
    (
        UnusedReason.FROM_ANOTHER,
        mixture,
        {"a": mlps(0, 1), **{name: set(SHAPES) - mlps(0, 1) for name in "bc"}},
    ),
    (UnusedReason.UNSHARED, unshared, {"a": {"y"}, "b": {"z"}}),
    (UnusedReason.UNCHANGED, adapter, {"a": {HEAD}, "other": {HEAD}}),
    (UnusedReason.NOT_EXTRACTED, adapter, {"a": layers(0), "other": layers(0)}),
    (UnusedReason.NO_PLACE, no_place, {"b": {"value_head.weight"}}),
    (UnusedReason.NO_PLACE, extracted, {"a": ROUTERS}),
]


def test_each_reason_has_a_row_and_a_star_where_nothing_is_lost() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    table = page.partition("| `reason` | the tensors are |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)`( \*)? \|", table, re.MULTILINE)
    assert {name: bool(star) for name, star in rows} == {
        reason.value: reason in HARMLESS for reason in UnusedReason
    }


def test_each_reason_has_a_case() -> None:
    assert list(dict.fromkeys(reason for reason, _, _ in CASES)) == list(UnusedReason)


@pytest.mark.parametrize(
    ("reason", "found", "expected"),
    CASES,
    ids=[f"{reason.value}-{found.__name__}" for reason, found, _ in CASES],
)
def test_a_reason_is_told_of_what_it_is_about(
    reason: UnusedReason,
    found: Callable[[Path], Accounts],
    expected: dict[str, set[str]],
    tmp_path: Path,
) -> None:
    reasons = told(found(tmp_path))
    assert {
        model: names
        for model, of_model in reasons.items()
        if (names := {name for name, why in of_model.items() if why == reason.value})
    } == expected
