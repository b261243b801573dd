"""An adapter as MLX saves it gives the weights that peft gives for the same matrices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters import merged_by_peft, write_adapter, write_base
from merging import merge, tensors_of, working_in
from safetensors.torch import load_file, save_file

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

RECIPE = "merge_method: passthrough\nmodels: [{model: ./base+./mlx}]\n"
PARAMETERS = {"rank": 4, "scale": 2.0, "dropout": 0.0}
ADDED = "base_model.model."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_base(tmp_path / "base", "llama")
    return tmp_path


def as_mlx_saves_it(folder: Path, config: Any = None, **options: Any) -> Path:
    """Write peft's adapter `peft`, and the same in MLX's form as `mlx`."""
    write_adapter(folder / "peft", folder / "base", "llama", **options)
    found = {}
    for name, tensor in load_file(folder / "peft" / "adapter_model.safetensors").items():
        module, _, role = name.removeprefix(ADDED).partition(".lora_")
        if role == "magnitude_vector":
            found[f"{module}.m"] = tensor
        elif role:
            matrix = role.removeprefix("embedding_")[0].lower()
            found[f"{module}.lora_{matrix}"] = tensor.T.contiguous()
    (folder / "mlx").mkdir()
    save_file(found, folder / "mlx" / "adapters.safetensors")
    said = {"fine_tune_type": "lora", "num_layers": 3, "lora_parameters": PARAMETERS}
    (folder / "mlx" / "adapter_config.json").write_text(json.dumps(said | (config or {})))
    return folder


def assert_same_as_peft(folder: Path, **expected: Any) -> None:
    ours = tensors_of(merge(folder, RECIPE, folder / "out"))
    theirs = merged_by_peft(folder / "base", folder / "peft", "llama")
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-5, atol=1e-6)
    assert json.loads((folder / "out" / "config.json").read_text()).items() >= expected.items()


def test_matrices_are_taken_as_they_lie(folder: Path) -> None:
    """A square weight, whose shape shows no order of its axes, is changed the right way round."""
    assert_same_as_peft(as_mlx_saves_it(folder, target_modules="all-linear"))


def test_magnitudes_of_dora(folder: Path) -> None:
    modules = ["q_proj", "down_proj"]
    config = {"fine_tune_type": "dora"}
    assert_same_as_peft(as_mlx_saves_it(folder, config, target_modules=modules, use_dora=True))


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_head_changes_with_its_embedding(tied: bool, tmp_path: Path) -> None:
    """MLX has one module for a tied head and its embedding."""
    write_base(tmp_path / "base", "llama", tie_word_embeddings=tied)
    as_mlx_saves_it(tmp_path, target_modules=["embed_tokens", "v_proj"])
    assert_same_as_peft(tmp_path, tie_word_embeddings=tied)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"fine_tune_type": "full"}, "fine_tune_type: full"),
        ({"lora_parameters": PARAMETERS | {"alpha": 16}}, "alpha: 16, rank: 4, scale: 2.0"),
        ({"lora_parameters": {"rank": 4}}, "scale"),
        ({"lora_parameters": PARAMETERS | {"rank": 8}}, "rank 8"),
        ({"fine_tune_type": "dora"}, "magnitude"),
    ],
)
def test_what_is_not_told_is_refused(config: Any, told: str, folder: Path) -> None:
    as_mlx_saves_it(folder, config, target_modules=["q_proj"])
    with working_in(folder), pytest.raises(InputError, match=told):
        open_source(read_reference("./base+./mlx"))
