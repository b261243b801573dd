"""Promise: the base model with the extracted adapter is the tuned model, for peft and for us."""

import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from merging import merge, tensors_of, working_in
from torch import Tensor
from tuned_models import MODELS, RANK, config_of, distance, inputs_of, write_packed, write_pair

import resumerge

NEAR = 1e-4
"""The error that is allowed, as a share of the change."""

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\ndtype: float32\n"


def extract(folder: Path, **options: Any) -> Path:
    with working_in(folder):
        options = {"max_rank": RANK, **options}
        resumerge.extract_lora("tuned", "base", "adapter", progress="none", **options)
    return folder / "adapter"


def logits(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        found: Tensor = model.eval()(**inputs).logits
    return found


def check(folder: Path, kind: str, cls: Any) -> None:
    """Compare what peft makes of the adapter, and what we do, with the tuned model."""
    inputs = inputs_of(kind)
    base, tuned = (cls.from_pretrained(folder / n, dtype=torch.float32) for n in ("base", "tuned"))
    before, wanted = logits(base, inputs), logits(tuned, inputs)
    weights, tuned_weights = (
        {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for model in (base, tuned)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        adapted = peft.PeftModel.from_pretrained(base, folder / "adapter")
    change = (wanted - before).norm()
    assert (logits(adapted, inputs) - wanted).norm() <= 10 * NEAR * change
    merged = adapted.merge_and_unload()
    assert (logits(merged, inputs) - wanted).norm() <= 10 * NEAR * change
    own = merge(folder, COPY, folder / "own")
    ours = cls.from_pretrained(own, dtype=torch.float32).state_dict()
    changed = 0
    for name in tuned_weights:
        length = distance(tuned_weights, weights, name)
        changed += length > 0.0
        for found in (merged.state_dict(), ours):
            assert distance(found, tuned_weights, name) <= NEAR * length, name
    assert changed


@pytest.mark.parametrize("kind", MODELS)
def test_a_known_change_comes_back(kind: str, tmp_path: Path) -> None:
    cls = write_pair(tmp_path, kind)
    extract(tmp_path)
    check(tmp_path, kind, cls)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mixtral", "qwen3_moe", "whisper", "resnet"])
def test_ranks_that_the_changes_choose(kind: str, tmp_path: Path) -> None:
    """Ranks from 1 to 5 come back as they are: peft has them in patterns."""
    drawn, ranks = torch.Generator().manual_seed(2), {}

    def change(name: str, parameter: Tensor) -> Tensor | None:
        if parameter.ndim < 2:
            return None
        parts = parameter if parameter.ndim == 3 and parameter.shape[1] > 8 else parameter[None]
        rows, columns = parts.shape[1], parts[0][0].numel()
        ranks[name.removesuffix(".weight")] = rank = min(1 + len(ranks) % 5, rows, columns)
        made = [
            torch.randn(rows, rank, generator=drawn) @ torch.randn(rank, columns, generator=drawn)
            for _ in parts
        ]
        return 0.02 * torch.stack(made).reshape(parameter.shape)

    cls = write_pair(tmp_path, kind, change=change)
    extract(tmp_path, max_rank=8, energy=1.0 - 1e-10)
    check(tmp_path, kind, cls)
    config = config_of(tmp_path / "adapter")
    assert config["r"] == config["lora_alpha"] == 5
    assert config["rank_pattern"] == config["alpha_pattern"]
    assert {1, 2, 3, 4} <= set(config["rank_pattern"].values())
    assert all(ranks.get(name, own) == own for name, own in config["rank_pattern"].items())


@pytest.mark.parametrize("embed_lora", [False, True])
@pytest.mark.parametrize("kind", ["llama", "llama_tied", "gpt2", "bert", "whisper", "t5"])
def test_embeddings_and_heads_too(kind: str, embed_lora: bool, tmp_path: Path, soak: bool) -> None:
    if kind in ("gpt2", "bert", "whisper") and not embed_lora and not soak:
        pytest.skip("three kinds that are saved whole are enough for every day: with --soak")
    cls = write_pair(tmp_path, kind, tables=True)
    extract(tmp_path, embed_lora=embed_lora)
    check(tmp_path, kind, cls)


@pytest.mark.parametrize("packed", ["base", "tuned", "both"])
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_experts_that_files_pack(kind: str, packed: str, tmp_path: Path, soak: bool) -> None:
    if kind == "qwen3_moe" and packed != "tuned" and not soak:
        pytest.skip("one way of this kind is enough for every day: the others with --soak")
    cls = write_pair(tmp_path, kind)
    for name in ("base", "tuned") if packed == "both" else (packed,):
        write_packed(tmp_path / name, cls)
    extract(tmp_path)
    check(tmp_path, kind, cls)


def test_a_change_of_few_modules_names_these_alone(tmp_path: Path) -> None:
    """The other modules would get matrices that the file does not have."""

    def change(name: str, parameter: Tensor) -> Tensor | None:
        if name.endswith(("0.self_attn.q_proj.weight", "0.input_layernorm.weight")):
            return 0.02 * torch.ones_like(parameter)
        return None

    cls = write_pair(tmp_path, "llama", change=change)
    adapter = extract(tmp_path)
    config = config_of(adapter)
    assert config["target_modules"] == ["model.layers.0.self_attn.q_proj"]
    assert config["modules_to_save"] == ["model.layers.0.input_layernorm"]
    assert len(tensors_of(adapter)) == 3
    check(tmp_path, "llama", cls)


def test_a_grown_vocabulary_is_saved_whole(tmp_path: Path) -> None:
    cls = write_pair(tmp_path, "llama", tables=True)
    tuned = cls.from_pretrained(tmp_path / "tuned")
    tuned.resize_token_embeddings(100)
    tuned.save_pretrained(tmp_path / "tuned")
    adapter = extract(tmp_path, embed_lora=True)
    base = cls.from_pretrained(tmp_path / "base", dtype=torch.float32)
    base.resize_token_embeddings(100)
    adapted = peft.PeftModel.from_pretrained(base, adapter)
    inputs = {"input_ids": torch.tensor([[98, 99, 1]])}
    torch.testing.assert_close(logits(adapted, inputs), logits(tuned, inputs))
    assert "resize_token_embeddings(100)" in (adapter / "README.md").read_text()
