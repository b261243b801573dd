"""Models that are merged into quantised outputs, and these as libraries load them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tiny_models import LLAMA, llama_shapes, random_tensors

from resumerge.quantisation import OUTPUTS

CONFIG = {
    **LLAMA,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "dtype": "bfloat16",
}
SCHEMES = tuple(OUTPUTS)


def write(folder: Path, seed: int, changed: dict[str, torch.Tensor] | None = None) -> Path:
    """Write a model in bfloat16; `changed` replaces some tensors."""
    folder.mkdir()
    tensors = random_tensors(llama_shapes(CONFIG), seed, "bfloat16") | (changed or {})
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def write_adapter(folder: Path) -> Path:
    """Write an adapter of one weight: ``model.layers.1.mlp.up_proj``."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(5)
    at = "base_model.model.model.layers.1.mlp.up_proj.lora_{}.weight".format
    factors = {
        at("A"): torch.randn(4, 256, generator=draw),
        at("B"): 0.1 * torch.randn(384, 4, generator=draw),
    }
    save_file(factors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["up_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def linear(out_dtype: str, first: str = "a", second: str = "b") -> str:
    return (
        f"merge_method: linear\nout_dtype: {out_dtype}\nmodels:\n"
        f"- {{model: {first}, parameters: {{weight: 0.4}}}}\n"
        f"- {{model: {second}, parameters: {{weight: 0.6}}}}\n"
    )


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def as_bytes(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[Any, ...]]:
    return {
        name: (t.dtype, t.shape, t.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        for name, t in tensors.items()
    }


def loaded(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights as transformers loads and dequantises them; no key may be wrong."""
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig, FineGrainedFP8Config

    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    kinds = {"fp8": FineGrainedFP8Config, "compressed-tensors": CompressedTensorsConfig}
    model, info = AutoModelForCausalLM.from_pretrained(
        folder,
        output_loading_info=True,
        dtype="auto",
        quantization_config=kinds[config["quant_method"]](dequantize=True),
    )
    assert not any(info.values()), info
    found: dict[str, torch.Tensor] = model.state_dict()
    return found
