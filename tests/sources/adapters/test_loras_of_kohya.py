"""A LoRA file of kohya's scripts is applied: flat names, alphas as tensors, no config."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from merging import merge, tensors_of, working_in
from safetensors.torch import load_file, save_file
from torch import Tensor

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

SHAPES = {
    "down_blocks.0.attentions.0.to_q.weight": (8, 8),
    "down_blocks.0.attentions.0.ff.net.0.proj.weight": (16, 8),
    "down_blocks.0.resnets.0.conv1.weight": (8, 4, 3, 3),
    "mid_block.attentions.0.to_q.weight": (8, 8),
}
RANK, ALPHA = 2, 3.0


def flat(name: str) -> str:
    return "lora_unet_" + name.removesuffix(".weight").replace(".", "_")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a bare model, `unet.safetensors`, and the file of a LoRA of all its weights."""
    generator = torch.Generator().manual_seed(0)
    model = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    save_file(model, tmp_path / "unet.safetensors")
    pairs: dict[str, Tensor] = {}
    for name, (rows, *columns) in SHAPES.items():
        ones = [1] * (len(columns) - 1)
        down = torch.randn(RANK, *columns, generator=generator)
        up = torch.randn(rows, RANK, *ones, generator=generator)
        pairs[f"{flat(name)}.lora_down.weight"] = down
        pairs[f"{flat(name)}.lora_up.weight"] = up
        pairs[f"{flat(name)}.alpha"] = torch.tensor(ALPHA)
    save_file(pairs, tmp_path / "style.safetensors")
    return tmp_path


def expected(folder: Path, scale: float) -> dict[str, Tensor]:
    model, pairs = (load_file(folder / f"{name}.safetensors") for name in ("unet", "style"))
    for name, tensor in model.items():
        down, up = (pairs[f"{flat(name)}.lora_{x}.weight"] for x in ("down", "up"))
        tensor += scale * torch.einsum("or,r...->o...", up.flatten(1), down)
    return model


@pytest.mark.parametrize("alphas", [True, False])
def test_each_pair_is_applied_with_its_alpha(alphas: bool, folder: Path) -> None:
    """The alpha of a pair that has none is the rank."""
    pairs = load_file(folder / "style.safetensors")
    kept = {name: pair for name, pair in pairs.items() if alphas or not name.endswith("alpha")}
    save_file(kept, folder / "style.safetensors")
    recipe = "merge_method: passthrough\nmodels: [{model: unet.safetensors+style.safetensors}]\n"
    ours = tensors_of(merge(folder, recipe, folder / "out"))
    theirs = expected(folder, ALPHA / RANK if alphas else 1.0)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-6, atol=1e-6)


def test_a_model_that_is_no_diffusion_model_is_refused(folder: Path) -> None:
    """A tensor with a name that the LoRA changes does not make a model a diffusion model."""
    save_file({"to_q.weight": torch.ones(8, 8)}, folder / "unet.safetensors")
    pairs = load_file(folder / "style.safetensors")
    of_q = {name: pair for name, pair in pairs.items() if "mid_block" in name}
    renamed = {name.replace("mid_block_attentions_0_", ""): pair for name, pair in of_q.items()}
    save_file(renamed, folder / "style.safetensors")
    with working_in(folder), pytest.raises(InputError, match="expected: a diffusion model"):
        open_source(read_reference("unet.safetensors+style.safetensors"))


@pytest.mark.parametrize("change", ["alpha is gone", "name of none", "name of two", "two alphas"])
def test_what_is_not_told_is_refused_by_name(change: str, folder: Path) -> None:
    pairs = load_file(folder / "style.safetensors")
    name = flat("mid_block.attentions.0.to_q.weight")
    if change == "alpha is gone":
        del pairs[f"{name}.alpha"]
    elif change == "two alphas":
        pairs[f"{name}.alpha"] = torch.ones(2)
    else:
        other = "lora_unet_nothing_to_q" if change == "name of none" else "lora_unet_0_to_q"
        pairs = {key.replace(name, other): pair for key, pair in pairs.items()}
        name = other
    save_file(pairs, folder / "style.safetensors")
    with working_in(folder), pytest.raises(InputError, match=name):
        open_source(read_reference("unet.safetensors+style.safetensors"))
