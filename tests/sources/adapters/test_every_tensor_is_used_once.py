"""Each tensor of an adapter is used exactly once, or the adapter is refused with its name."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters import write_adapter, write_base
from merging import working_in
from safetensors.torch import load_file, save_file
from torch import Tensor

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import Source, open_source

DRAWS = 200
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("llama", {"target_modules": "all-linear"}),
    "dora": ("llama", {"target_modules": ["q_proj", "o_proj", "down_proj"], "use_dora": True}),
    "saved": (
        "llama",
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "input_layernorm"]},
    ),
    "tokens": ("llama", {"target_modules": ["v_proj"], "trainable_token_indices": [3, 9, 40]}),
    "conv1d": ("gpt2", {"target_modules": ["attn.c_proj", "c_fc"], "fan_in_fan_out": True}),
    "experts": ("moe", {"target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"]}),
    "biases": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "bias": "lora_only"}),
    "all_biases": ("gpt2", {"target_modules": ["c_attn"], "bias": "all"}),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the bases, and an adapter of each kind; yield their folder and delete it."""
    folder = tmp_path_factory.mktemp("once")
    for kind in ("llama", "gpt2", "moe"):
        write_base(folder / kind, kind)
    for name, (kind, options) in KINDS.items():
        write_adapter(folder / name, folder / kind, kind, r=2, **options)
    yield folder
    shutil.rmtree(folder)


def opened(models: Path, name: str, tensors: dict[str, Tensor]) -> Source:
    """Return a base opened with an adapter of these tensors and a kind's config."""
    folder = models / f"changed-{name}"
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text((models / name / "adapter_config.json").read_text())
    save_file(tensors, folder / "adapter_model.safetensors")
    with working_in(models):
        return open_source(read_reference(f"./{KINDS[name][0]}+./{folder.name}"))


def told(source: Source) -> str:
    """Return as JSON what each tensor is computed from, without the default name of adapters."""
    trees = {name: tensor.as_json() for name, tensor in source.tensors.items()}
    return json.dumps(trees, sort_keys=True).replace(".default", "")


def another_name(chosen: random.Random, key: str, all_keys: list[str]) -> str:
    """Return a tensor's name with one word changed, missing, doubled, or borrowed from a name."""
    words = key.split(".")
    at = chosen.randrange(len(words))
    how = chosen.choice(["letters", "missing", "doubled", "number", "borrowed"])
    if how == "letters":
        words[at] = "".join(chosen.choices("abcdefghij", k=6))
    elif how == "missing":
        del words[at]
    elif how == "doubled":
        words.insert(at, words[at])
    elif how == "number":
        places = [k for k, word in enumerate(words) if word.isdecimal()] or [at]
        words[places[0]] = str(chosen.choice([0, 1, 2, 99]))
    else:
        other = chosen.choice(all_keys).split(".")
        words[at] = other[min(at, len(other) - 1)]
    return ".".join(words)


@pytest.mark.parametrize("name", KINDS)
def test_no_change_of_a_name_goes_unnoticed(name: str, models: Path) -> None:
    """An adapter with a tensor renamed, dropped or doubled is refused, noted, or the same model."""
    chosen = random.Random(name)
    before = load_file(models / name / "adapter_model.safetensors")
    right = told(opened(models, name, before))
    keys = sorted(before)
    for _ in range(-(-DRAWS // len(KINDS))):
        tensors, key = dict(before), chosen.choice(keys)
        what = chosen.choice(["renamed", "dropped", "doubled"])
        new = another_name(chosen, key, keys)
        if what != "doubled":
            del tensors[key]
        if what != "dropped" and new not in tensors:
            tensors[new] = before[key].clone()
        if tensors.keys() == before.keys() or not tensors:
            continue
        try:
            found = opened(models, name, tensors)
        except InputError as error:
            assert error.problems and all(problem.found for problem in error.problems)
            continue
        same = told(found).replace(new, key) == right
        assert (same and what == "renamed") or any(new in note for note in found.notes), (
            f"{what} {key} as {new}"
        )


def test_a_tensor_twice_under_two_names_is_refused_with_both(models: Path) -> None:
    before = load_file(models / "lora" / "adapter_model.safetensors")
    key = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"
    for other in (
        key.removeprefix("base_model.model."),
        key.replace("lora_A.weight", "lora_A.default.weight"),
        key.replace("base_model.model.model.", "base_model.model.model.language_model."),
    ):
        with pytest.raises(InputError, match=r"(?s)names that mean the same.*up_proj.*up_proj"):
            opened(models, "lora", {**before, other: before[key].clone()})


@pytest.mark.parametrize("name", ["v_head.summary.weight", "base_model.model.score.weight"])
def test_a_tensor_that_the_model_has_no_place_for_is_refused(name: str, models: Path) -> None:
    """Only a classifier's adapter adds a head."""
    before = load_file(models / "lora" / "adapter_model.safetensors")
    with pytest.raises(InputError, match=rf"(?s)no place for.*{name}"):
        opened(models, "lora", {**before, name: torch.ones(1, 16)})
