"""Models whose weights change while a merge is made of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from crashing import Merge
from safetensors.torch import load_file, save_file

FILE = "model.safetensors"


def retrained(model: Path) -> bytes:
    """Return weights of the same size and header, with other numbers."""
    tensors = load_file(model)
    other = model.with_suffix(".other")
    save_file({name: t + 0.25 for name, t in tensors.items()}, other, {"format": "pt"})
    data = other.read_bytes()
    other.unlink()
    return data


def moved_over(model: Path, data: bytes) -> None:
    """Give the name to another file, as rsync, git and `hf download` do."""
    fresh = model.with_suffix(".fresh")
    fresh.write_bytes(data)
    fresh.replace(model)


def with_own_models(merge: Merge) -> Merge:
    shutil.copytree(merge.models, merge.folder / "models")
    merge.models = merge.folder / "models"
    return merge
