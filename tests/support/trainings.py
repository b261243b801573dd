"""Checkpoints of a simulated training: each is the one before it plus noise."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from merging import tensors_of
from safetensors.torch import save_file
from tiny_models import TWO_LAYERS, write_family


def write_training(folder: Path, count: int) -> Path:
    """Write ``step-4``, ``step-8``… with config.json into a folder, and return it."""
    made = write_family(folder.with_name(f"{folder.name} began"), TWO_LAYERS)
    generator = torch.Generator().manual_seed(3)
    state = tensors_of(made / "base")
    for number in range(1, count + 1):
        step = folder / f"step-{4 * number}"
        shutil.copytree(made / "base", step)
        state = {
            name: value + 0.1 * torch.randn(value.shape, generator=generator)
            if value.is_floating_point()
            else value
            for name, value in state.items()
        }
        save_file(state, step / "model.safetensors")
    return folder
