"""`extract_expert`: one expert of a mixture, as a dense model that transformers opens."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from loading import loaded
from merging import tensors_of
from safetensors.torch import load_file, save_file
from zoo import ARCHITECTURES, LLAMA, TOKENS

import resumerge
from resumerge.errors import InputError

Tensors = dict[str, torch.Tensor]
Change = Callable[[Tensors], None]

NUMBER = 2
FAMILIES = {
    "mixtral": "MistralForCausalLM",
    "qwen2_moe": "Qwen2ForCausalLM",
    "qwen3_moe": "Qwen3ForCausalLM",
    "granitemoe": "GraniteForCausalLM",
}


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that makes a family's mixture of copies of one expert, in a layout."""
    root = tmp_path_factory.mktemp("mixtures")

    def made(name: str, *, packed: bool) -> Path:
        folder = root / name / f"packed-{packed}"
        if not folder.exists():
            model = ARCHITECTURES[name].build(seed=0)
            model.config.norm_topk_prob = True
            with torch.no_grad():
                for parameter_name, parameter in model.named_parameters():
                    if ".experts." in parameter_name:
                        parameter[:] = parameter[NUMBER].clone() * 8
                    if "shared_expert." in parameter_name:
                        parameter.zero_()
            model.save_pretrained(folder, save_original_format=not packed)
        return folder

    return made


def opened(folder: Path, architecture: str) -> Any:
    """Load a model, and check that transformers finds every tensor and no other."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(info[key] for key in info if "keys" in key), info
    assert type(model).__name__ == architecture
    return model.eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS).logits
    return found


@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize("name", FAMILIES)
def test_it_computes_what_a_mixture_of_its_copies_does(
    name: str, packed: bool, mixture: Callable[..., Path], tmp_path: Path
) -> None:
    folder = mixture(name, packed=packed)
    resumerge.extract_expert(folder, NUMBER, tmp_path / "out", state_dir=tmp_path / "state")
    dense, whole = opened(tmp_path / "out", FAMILIES[name]), loaded(name, folder)
    torch.testing.assert_close(logits(dense), logits(whole), rtol=1e-4, atol=1e-5)


MADE_FROM = {
    "mixtral": ("MistralForCausalLM", "MistralConfig", "block_sparse_moe", ("w1", "w3", "w2")),
    "deepseek": ("LlamaForCausalLM", "LlamaConfig", "mlp", ("gate_proj", "up_proj", "down_proj")),
}


@pytest.mark.parametrize("kind", MADE_FROM)
def test_of_a_mixture_made_from_dense_models_it_gives_them_back(kind: str, tmp_path: Path) -> None:
    """mergekit-moe makes such mixtures: the first model's layers, with the MLPs of all models."""
    architecture, config, block, projections = MADE_FROM[kind]
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = getattr(transformers, architecture)(getattr(transformers, config)(**LLAMA))
        models.append(model.to(torch.bfloat16).state_dict())
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in models[0].items():
        if ".mlp." not in name:
            tensors[name] = tensor
            continue
        for number, theirs in enumerate(models):
            layer, _, projection = name.removesuffix(".weight").partition(".mlp.")
            order = ("gate_proj", "up_proj", "down_proj").index(projection)
            path = f"{layer}.{block}.experts.{number}.{projections[order]}.weight"
            tensors[path] = theirs[name].clone()
    for layer in range(LLAMA["num_hidden_layers"]):
        tensors[f"model.layers.{layer}.{block}.gate.weight"] = torch.zeros(3, 16).bfloat16()
    mixed = getattr(transformers, config)(**LLAMA).to_dict() | {
        "model_type": kind,
        "architectures": [kind],
        "num_local_experts": 3,
        "n_routed_experts": 3,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": 0,
    }
    folder = tmp_path / kind
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(mixed))
    for number, theirs in enumerate(models):
        out = tmp_path / f"out{number}"
        resumerge.extract_expert(folder, number, out, state_dir=tmp_path / "state")
        opened(out, architecture)
        found = tensors_of(out)
        assert found.keys() == theirs.keys()
        for name, tensor in found.items():
            assert torch.equal(tensor, (theirs if ".mlp." in name else models[0])[name]), name


def test_the_command_is_a_run_like_any(mixture: Callable[..., Path], tmp_path: Path) -> None:
    folder = mixture("mixtral", packed=True)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "resumerge", *words, "--state-dir", "state"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    made = call("extract-expert", str(folder), "1", "out")
    assert made.returncode == 0, made.stderr
    opened(tmp_path / "out", "MistralForCausalLM")
    assert "extract_expert: 1" in (tmp_path / "out" / "mergekit_config.yml").read_text()
    assert call("verify", "out").returncode == 0
    shard = tmp_path / "out" / "model.safetensors"
    content = shard.read_bytes()
    shard.unlink()
    assert call("resume", "out").returncode == 0
    assert shard.read_bytes() == content, "computed again from the run's copy of the recipe"
    wrong = call("extract-expert", str(folder), "4", "other")
    assert wrong.returncode == 2 and "from 0 to 3" in wrong.stderr
    assert not (tmp_path / "other").exists()


def test_it_is_an_operand_of_other_stages(mixture: Callable[..., Path], tmp_path: Path) -> None:
    folder = mixture("qwen3_moe", packed=True)
    first = {"merge_method": "passthrough", "models": [{"model": str(folder)}]}
    documents = [first | {"name": name, "extract_expert": n} for name, n in (("a", 0), ("b", 1))]
    weights = [{"model": name, "parameters": {"weight": 0.5}} for name in "ab"]
    resumerge.run(
        [*documents, {"merge_method": "linear", "models": weights}],
        tmp_path / "out",
        state_dir=tmp_path / "state",
    )
    opened(tmp_path / "out", "Qwen3ForCausalLM")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("deepseek_v3", "model_type deepseek_v3"),
        ("gpt_oss", "model_type gpt_oss"),
        ("olmoe", "model_type olmoe"),
        ("llama", "model_type llama"),
    ],
)
def test_where_there_is_no_dense_architecture_it_is_refused(
    name: str, told: str, tmp_path: Path
) -> None:
    ARCHITECTURES[name].build(seed=0).save_pretrained(tmp_path / name)
    with pytest.raises(InputError, match="No dense model can be made") as refused:
        resumerge.extract_expert(tmp_path / name, 0, tmp_path / "out", state_dir=tmp_path / "state")
    assert told in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_layers_of_several_sizes_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = ARCHITECTURES["qwen3_moe"].options | {"mlp_only_layers": [0]}
    config = transformers.Qwen3MoeConfig(**options)
    transformers.Qwen3MoeForCausalLM(config).save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match="have several sizes"):
        resumerge.extract_expert(
            tmp_path / "model", 0, tmp_path / "out", state_dir=tmp_path / "state"
        )


def without(pattern: str) -> Change:
    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if re.search(pattern, name)]:
            del tensors[name]

    return change


def both(tensors: Tensors) -> None:
    """Add the experts of the first layer once more, packed."""
    for kind in ("down_proj", "up_proj", "gate_proj"):
        parts = [tensors[f"model.layers.0.mlp.experts.{n}.{kind}.weight"] for n in range(4)]
        tensors[f"model.layers.0.mlp.experts.{kind}"] = torch.stack(parts)


def downs_packed(tensors: Tensors) -> None:
    for layer in range(2):
        names = [f"model.layers.{layer}.mlp.experts.{n}.down_proj.weight" for n in range(4)]
        packed = torch.stack([tensors.pop(name) for name in names])
        tensors[f"model.layers.{layer}.mlp.experts.down_proj"] = packed


def one_more(tensors: Tensors) -> None:
    tensors["model.layers.0.mlp.experts.extra_proj"] = torch.zeros(4, 3, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without(r"layers\.1\.mlp\.experts\.2\.up_proj"), "would be incomplete"),
        (without(r"layers\.1\.mlp\.experts\.2\."), "would be incomplete"),
        (without(r"layers\.1\.self_attn\.o_proj"), "would be incomplete"),
        (without(r"layers\.1\."), "would be incomplete"),
        (both, "would be lost"),
        (downs_packed, "would be lost"),
        (one_more, "would be lost"),
    ],
)
def test_nothing_is_lost_in_silence(
    change: Change, said: str, mixture: Callable[..., Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(mixture("qwen3_moe", packed=False), tmp_path / "model")
    [file] = folder.glob("*.safetensors")
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=said):
        resumerge.extract_expert(folder, NUMBER, tmp_path / "out", state_dir=tmp_path / "state")
    assert not (tmp_path / "out").exists()


KEYS = ("rms_norm_eps", "max_position_embeddings", "rope_parameters", "sliding_window", "head_dim")
KEYS += ("num_key_value_heads", "hidden_act", "tie_word_embeddings", "attention_bias")


@pytest.mark.parametrize("name", FAMILIES)
def test_what_its_config_does_not_say_stays_as_it_is(
    name: str, mixture: Callable[..., Path], tmp_path: Path
) -> None:
    """The defaults of the dense architecture differ from those of the mixture."""
    folder = shutil.copytree(mixture(name, packed=True), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    for key in ("rms_norm_eps", "rope_parameters", "sliding_window", "max_position_embeddings"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config))
    resumerge.extract_expert(folder, NUMBER, tmp_path / "out", state_dir=tmp_path / "state")
    meant, said = (transformers.AutoConfig.from_pretrained(f) for f in (folder, tmp_path / "out"))
    for each in (meant, said):
        each.head_dim = (
            getattr(each, "head_dim", None) or each.hidden_size // each.num_attention_heads
        )
    for key in KEYS:
        default = 0 if key == "sliding_window" else None  # which means none, as 0 does
        assert (getattr(said, key, None) or default) == (getattr(meant, key, None) or default), key


def test_biases_that_a_mixture_may_lack_and_a_dense_model_not(tmp_path: Path) -> None:
    config = transformers.Qwen2MoeConfig(
        **LLAMA, qkv_bias=False, num_experts=4, moe_intermediate_size=24,
        shared_expert_intermediate_size=24, num_experts_per_tok=2,
    )  # fmt: skip
    model = transformers.Qwen2MoeForCausalLM(config)
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=r"k_proj\.bias"):
        resumerge.extract_expert(
            tmp_path / "model", NUMBER, tmp_path / "out", state_dir=tmp_path / "state"
        )
