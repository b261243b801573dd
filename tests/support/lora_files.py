"""Adapters in peft's format, written without peft: quickly, and of any shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

Pair = tuple[Tensor, Tensor]
"""A, of shape (rank, inputs), and B, of shape (outputs, rank)."""


def write_lora_files(
    folder: Path,
    modules: Mapping[str, tuple[int, int]],
    seed: int,
    *,
    rank: int = 4,
    alpha: float | None = None,
    dtype: torch.dtype = torch.float32,
    more: Mapping[str, Tensor] | None = None,
    **config: Any,
) -> dict[str, Tensor]:
    """Write an adapter, and return the change of each module, in float64.

    Args:
        folder: the adapter's folder.
        modules: the (outputs, inputs) of each module.
        seed: the seed of its numbers.
        rank: the rank of every module.
        alpha: lora_alpha; by default the rank.
        dtype: the dtype of its tensors.
        more: further tensors, by their names in the file.
        config: further options of adapter_config.json.
    """
    drawn = torch.Generator().manual_seed(seed)
    tensors, changes = {}, {}
    scale = (rank if alpha is None else alpha) / rank
    for module, (outputs, inputs) in modules.items():
        a = torch.randn(rank, inputs, generator=drawn).to(dtype)
        b = 0.1 * torch.randn(outputs, rank, generator=drawn)
        b = b.to(dtype)
        tensors[f"base_model.model.{module}.lora_A.weight"] = a
        tensors[f"base_model.model.{module}.lora_B.weight"] = b
        changes[module] = scale * b.double() @ a.double()
    folder.mkdir(parents=True)
    save_file(tensors | dict(more or {}), folder / "adapter_model.safetensors")
    names = sorted({module.rpartition(".")[2] for module in modules})
    found = {"peft_type": "LORA", "r": rank, "lora_alpha": rank if alpha is None else alpha}
    config = {**found, "target_modules": names, **config}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return changes


def changes_in(adapter: Path) -> dict[str, Tensor]:
    """Return the change of each module by an adapter whose scales are 1, in float64."""
    from safetensors.torch import load_file

    tensors = load_file(adapter / "adapter_model.safetensors")
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["alpha_pattern"] == config["rank_pattern"]
    assert config["lora_alpha"] == config["r"] and not config["use_rslora"]
    found = {}
    for name, a in tensors.items():
        if name.endswith(".lora_A.weight"):
            b = tensors[name.replace("lora_A", "lora_B")]
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            found[module] = b.double() @ a.double()
    return found
