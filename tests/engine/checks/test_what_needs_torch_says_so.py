"""Promise: without torch all else works; what needs it is refused before anything is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.errors import InputError
from resumerge.methods.loading import methods_in_file

pytestmark = pytest.mark.cold_start

PAIR = "models: [{{model: {0}/base}}, {{model: {0}/math}}]\nbase_model: {0}/base\n"
NEEDS: dict[str, str] = {
    "iso_c": "merge_method: iso_c\n" + PAIR,
    "arcee_fusion": "merge_method: arcee_fusion\n" + PAIR,
    "adapter": "merge_method: linear\nparameters: {{weight: 1}}\n"
    "models: [{{model: {0}/base+{0}/adapter}}, {{model: {0}/math}}]\n",
}
LINEAR = "merge_method: linear\nparameters: {{weight: 1}}\n" + PAIR

IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules["torch"] = sys.modules["transformers"] = None
import resumerge
for module in pkgutil.walk_packages(resumerge.__path__, "resumerge."):
    try:
        module.name.endswith("__main__") or importlib.import_module(module.name)
    except ImportError:
        print(module.name)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_family(tmp_path_factory.mktemp("models"), LLAMA)
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_{}.weight"
    (folder / "adapter").mkdir()
    save_file(
        {
            name.format("A"): np.ones((2, LLAMA["hidden_size"]), np.float32),
            name.format("B"): np.ones((LLAMA["intermediate_size"], 2), np.float32),
        },
        folder / "adapter" / "adapter_model.safetensors",
    )
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["up_proj"]}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def config(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Hide torch and transformers, and return a function that writes a recipe."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)

    def write(recipe: str) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(recipe.format(models))
        return path

    return write


def refusal(run: Callable[..., Any], *given: object, **options: Any) -> Any:
    with pytest.raises(InputError) as error:
        run(*given, **options)
    [problem] = error.value.problems
    return problem


@pytest.mark.parametrize("recipe", NEEDS.values(), ids=NEEDS)
def test_a_merge_is_refused_with_the_command(
    recipe: str, config: Callable[[str], Path], tmp_path: Path
) -> None:
    path, out, state = config(recipe), tmp_path / "out", tmp_path / "state"
    problem = refusal(resumerge.run, path, out, state_dir=state)
    assert problem.fix == "pip install torch"
    assert "torch, which is not installed" in problem.what
    assert not out.exists() and not state.exists()
    [planned] = resumerge.plan(path, out, state_dir=state)["problems"]
    assert planned["what"] == problem.what


def test_an_environment_of_uv_is_made_anew(
    config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv-receipt.toml").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    problem = refusal(resumerge.run, config(NEEDS["iso_c"]), tmp_path / "out", state_dir=tmp_path)
    assert "uv tool install" in problem.fix


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_device_that_torch_would_use_changes_no_merge_by_kernels(
    device: str, config: Callable[[str], Path], tmp_path: Path
) -> None:
    resumerge.run(config(LINEAR), tmp_path / "out", state_dir=tmp_path / "state", device=device)
    assert (tmp_path / "out" / "config.json").exists()


def test_a_merge_by_torch_is_refused_on_any_device(
    config: Callable[[str], Path], tmp_path: Path
) -> None:
    path = config(NEEDS["iso_c"])
    for device in ("auto", "cuda"):
        [problem] = resumerge.plan(path, state_dir=tmp_path, device=device)["problems"]
        assert problem["fix"] == "pip install torch"


def test_a_file_of_methods_that_imports_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("import torch.nn\n")
    monkeypatch.setitem(sys.modules, "torch", None)
    problem = refusal(methods_in_file, tmp_path / "mine.py")
    assert problem.fix.endswith("pip install torch")
    assert "mine.py, line 1" in problem.found


def test_two_modules_alone_import_it_when_they_are_imported() -> None:
    """Each of the two modules is imported when a plan has work for torch."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "resumerge.engine.evaluation.torch_backend",
        "resumerge.experts.upcycling.gates.decoder",
    ]
