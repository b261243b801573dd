"""Methods that mix task vectors: in core space, and beside the same method on whole models."""

import re
from pathlib import Path

import pytest
import torch
from lora_files import changes_in, write_lora_files
from merging import merge, tensors_of
from tiny_models import LLAMA, llama_shapes, write_model
from torch import Tensor

from resumerge.methods import METHODS

MODULES = {
    "model.layers.0.self_attn.q_proj": (16, 16),
    "model.layers.1.self_attn.k_proj": (8, 16),
    "model.layers.2.mlp.up_proj": (40, 16),
    "model.layers.3.mlp.down_proj": (16, 40),
}
FULL = 16
"""The rank with which a product of 16 rows or columns can be any matrix."""

COMBINING = [name for name, method in METHODS.items() if method.combines_changes]

GIVEN = "{weight: WEIGHT, density: 0.4, gamma: 0.05, threshold: 0.1, epsilon: 0.2}"


def test_the_documentation_names_them() -> None:
    page = (Path(__file__).parents[2] / "docs/adapters.md").read_text()
    [section] = re.findall(r"## Combine adapters\n(.+?)\n## ", page, re.DOTALL)
    assert all(f"`{name}`" in section for name in COMBINING)


def entries(models: list[str]) -> str:
    given = [GIVEN.replace("WEIGHT", str(0.5 + 0.25 * n)) for n in range(len(models))]
    return "".join(f"- {{model: {m}, parameters: {p}}}\n" for m, p in zip(models, given))


def write(folder: Path, rank: int, count: int = 2) -> list[dict[str, Tensor]]:
    """Write a base model of zeros and its adapters, of which the last lacks a module."""
    shapes = llama_shapes(LLAMA)
    assert all(shapes[f"{module}.weight"] == shape for module, shape in MODULES.items())
    write_model(folder / "base", {name: torch.zeros(shape) for name, shape in shapes.items()})
    changes = []
    for number in range(count):
        modules = dict(list(MODULES.items())[: len(MODULES) - (number == count - 1)])
        changes.append(
            write_lora_files(folder / f"a{number}", modules, number, rank=rank, alpha=7 + number)
        )
    return changes


@pytest.mark.parametrize("method", [name for name in COMBINING if name not in ("passthrough",)])
def test_of_full_ranks_it_is_the_method_on_whole_models(method: str, tmp_path: Path) -> None:
    """Each rank is the smaller side of most modules; that of k_proj is twice its smaller side."""
    write(tmp_path, FULL)
    names = ["a0", "a1"]
    head = f"merge_method: {method}\nparameters: {{r: 0.3, nuslerp_flatten: false}}\nmodels:\n"
    own = merge(tmp_path, head + entries(names) + "rank: 40\n", tmp_path / "own")
    base = "" if METHODS[method].base == "none" else "base_model: base\n"
    whole = merge(
        tmp_path,
        head + entries([f"base+{name}" for name in names]) + base + "dtype: float32\n",
        tmp_path / "whole",
    )
    wanted, found = tensors_of(whole), changes_in(own)
    assert found.keys() == MODULES.keys()
    for module, change in found.items():
        exact = wanted[f"{module}.weight"].double()
        assert exact.norm() > 0.0 or module == list(MODULES)[-1]  # one adapter lacks it
        assert (change - exact).norm() <= 1e-5 * exact.norm(), module


def ties(changes: list[Tensor], weights: list[float], density: float) -> Tensor:
    """Return what TIES does in its paper: trim, elect signs, take the mean of those that agree."""
    kept = []
    for change, weight in zip(changes, weights):
        count = max(1, int(density * change.numel()))
        smallest = change.abs().flatten().sort(descending=True).values[count - 1]
        kept.append(weight * torch.where(change.abs() >= smallest, change, 0.0))
    sign = torch.sign(torch.stack(kept).sum(0))
    agree = [torch.sign(k) == sign for k in kept]
    total = sum(torch.where(a, k, 0.0) for a, k in zip(agree, kept))
    divisor = sum(torch.where(a & (k != 0.0), w, 0.0) for a, k, w in zip(agree, kept, weights))
    return torch.where(divisor > 0.0, total / divisor, 0.0)


def test_ties_of_lower_ranks_is_that_of_the_cores(tmp_path: Path) -> None:
    """The bases are the singular vectors of all factors: computed here by torch."""
    changes = write(tmp_path, 3)
    head = "merge_method: ties\nmodels:\n"
    found = changes_in(merge(tmp_path, head + entries(["a0", "a1"]), tmp_path / "out"))
    for module in list(MODULES)[:3]:
        factors = [tensors_of(tmp_path / name) for name in ("a0", "a1")]
        prefix = f"base_model.model.{module}.lora_"
        scales = [7 / 3, 8 / 3]
        lefts = [s * f[f"{prefix}B.weight"].double() for s, f in zip(scales, factors)]
        left = torch.linalg.svd(torch.hstack(lefts), full_matrices=False).U
        rights = torch.vstack([f[f"{prefix}A.weight"].double() for f in factors])
        right = torch.linalg.svd(rights, full_matrices=False).Vh
        cores = [left.T @ change[module] @ right.T for change in changes]
        exact = left @ ties(cores, [0.5, 0.75], 0.4) @ right
        if sum(f[f"{prefix}A.weight"].shape[0] for f in factors) < min(MODULES[module]):
            assert (found[module] - exact).norm() <= 1e-5 * exact.norm(), module


def test_it_does_not_matter_whether_alpha_or_the_matrix_has_a_factor(tmp_path: Path) -> None:
    """An alpha that halves and matrices that double are the same adapter."""
    modules = dict(list(MODULES.items())[:1])
    write_lora_files(tmp_path / "a0", modules, 0, alpha=8)
    write_lora_files(tmp_path / "a1", modules, 1, alpha=4)
    head = "merge_method: ties\nmodels:\n"
    one = merge(tmp_path, head + entries(["a0", "a1"]), tmp_path / "one")
    from safetensors.torch import load_file, save_file

    file = tmp_path / "a0/adapter_model.safetensors"
    doubled = {n: 2.0 * t if "lora_B" in n else t for n, t in load_file(file).items()}
    save_file(doubled, file)
    config = tmp_path / "a0/adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 8', '"lora_alpha": 4'))
    two = merge(tmp_path, head + entries(["a0", "a1"]), tmp_path / "two")
    assert tensors_of(one).keys() == tensors_of(two).keys()
    assert all(torch.equal(t, tensors_of(two)[n]) for n, t in tensors_of(one).items())


def test_parameters_may_differ_between_modules_and_layers(tmp_path: Path) -> None:
    changes = write(tmp_path, 4)
    weight = "[{filter: up_proj, value: 3}, {value: [0, 1]}]"
    text = f"- {{model: a0, parameters: {{weight: {weight}}}}}\n- {{model: a1, parameters: "
    text += "{weight: 0}}\n"
    head = "merge_method: linear\nparameters: {normalize: false}\nmodels:\n"
    found = changes_in(merge(tmp_path, head + text, tmp_path / "out"))
    for module, factor in zip(MODULES, (0.0, 1 / 3, 3.0, 1.0)):
        exact = factor * changes[0][module]
        assert (found[module] - exact).norm() <= 1e-6 * changes[0][module].norm(), module
