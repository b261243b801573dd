"""Promise: what trainers save beside the tensors is left out by name, and never constructed."""

from __future__ import annotations

import argparse
import collections
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from malicious_checkpoints import Calls
from merging import merge, tensors_of, working_in

import resumerge
from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import Source, open_source

TENSORS = {"net.weight": torch.randn(6, 4), "net.bias": torch.randn(6)}

LIGHTNING = """
import sys, types, collections, torch
module = types.ModuleType("lightning.callbacks")
package = types.ModuleType("lightning")
class Checkpoint: pass
class Settings(dict): pass
class Deep:
    def __init__(self): self.inner = {"a": [1, 2]}
for made in (Checkpoint, Settings, Deep):
    made.__module__, made.__qualname__ = "lightning.callbacks", made.__name__
    setattr(module, made.__name__, made)
sys.modules |= {"lightning": package, "lightning.callbacks": module}
values = torch.load(sys.argv[1])
torch.save({
    "epoch": 3, "best": 0.25, "version": "2.1", "nothing": None,
    "state_dict": {**values, "_extra_state": None},
    "callbacks": {Checkpoint: {"score": torch.tensor(0.5)}},
    "settings": Settings(lr=0.1, deep=Deep()),
}, sys.argv[1])
"""
"""A script that saves a checkpoint with classes that the reading process does not have."""


def opened(path: Path) -> Source:
    return open_source(read_reference(str(path)))


def saved(path: Path, value: Any, **options: Any) -> Source:
    torch.save(value, path, **options)
    return opened(path)


def check_tensors(source: Source) -> None:
    assert {name: info.shape for name, info in source.tensors.items()} == {
        name: tuple(tensor.shape) for name, tensor in TENSORS.items()
    }


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("wrapped", "told"),
    [
        ({"state_dict": TENSORS}, ""),
        ({"model": TENSORS, "step": 7}, "step (int)"),
        ({"module": TENSORS}, ""),
        ({"model_state_dict": TENSORS, "optimizer_state_dict": {}}, "optimizer_state_dict (dict)"),
        ({"state_dict": {"model": TENSORS}, "loss": 0.5}, "loss (float)"),
        ({**TENSORS, "note": "text"}, "note (str)"),
        ({"state_dict": TENSORS, "ema": torch.ones(2)}, "ema (tensor)"),
    ],
)
def test_wrappers(wrapped: dict[str, Any], told: str, zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    source = saved(path, wrapped, _use_new_zipfile_serialization=zipped)
    check_tensors(source)
    expected = f"{path}: left out, because not of the model: {told}"
    assert source.notes == ((expected,) if told else ())


def test_names_of_data_parallel_lose_their_prefix(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.pth", {f"module.{name}": t for name, t in TENSORS.items()})
    check_tensors(source)
    assert "'module.'" in source.notes[0]
    one = saved(tmp_path / "b.pth", {"module.a": torch.ones(1), "b": torch.ones(1)})
    assert set(one.tensors) == {"module.a", "b"} and one.notes == ()


def test_objects_of_a_framework_are_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save(TENSORS, path)
    subprocess.run([sys.executable, "-c", LIGHTNING, str(path)], check=True)
    source = opened(path)
    check_tensors(source)
    assert source.notes == (
        f"{path}: left out, because not of the model: epoch (int), best (float), version (str), "
        "nothing (NoneType), callbacks (dict), settings (lightning.callbacks.Settings), "
        "_extra_state (NoneType)",
    )
    assert "lightning" not in sys.modules


def test_values_of_python_and_numpy(tmp_path: Path) -> None:
    values = {
        "arguments": argparse.Namespace(lr=0.1, path=Path("/x"), device=torch.device("cpu")),
        "mean": np.float64(0.5),
        "array": np.arange(4),
        "set": {1, 2},
        "counts": collections.defaultdict(list, {"a": [1]}),
    }
    source = saved(tmp_path / "a.pt", {"model": TENSORS, **values})
    check_tensors(source)
    for name in values:
        assert f"{name} (" in source.notes[0]


@pytest.mark.parametrize("function", [os.system, eval, subprocess.call, torch.load, getattr])
def test_what_would_run_is_refused_wherever_it_stands(function: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save({"model": TENSORS, "more": [Calls(function, "touch run")]}, path)
    with pytest.raises(InputError, match="more than weights"):
        opened(path)


def test_a_checkpoint_without_tensors_says_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save({"state_dict": {"x": 1}, "epoch": 2}, path)
    with pytest.raises(InputError, match="contains no tensors") as error:
        opened(path)
    assert error.value.problems[0].found == "epoch (int), x (int)"


def test_a_name_and_a_tensor_that_has_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a name for every tensor"):
        saved(tmp_path / "a.ckpt", {"state_dict": {0: torch.ones(1)}})


def test_they_are_merged_and_it_is_told_what_is_left_out(tmp_path: Path) -> None:
    torch.save({"state_dict": TENSORS, "epoch": 3}, tmp_path / "a.ckpt")
    torch.save({f"module.{n}": 2 * t for n, t in TENSORS.items()}, tmp_path / "b.ckpt")
    recipe = (
        "merge_method: linear\nparameters: {weight: 1}\n"
        "models: [{model: a.ckpt}, {model: b.ckpt}]\n"
    )
    found = tensors_of(merge(tmp_path, recipe, tmp_path / "out"))
    for name, tensor in TENSORS.items():
        torch.testing.assert_close(found[name], 1.5 * tensor)
    (tmp_path / "recipe.yaml").write_text(recipe)
    with working_in(tmp_path):
        notes = resumerge.plan("recipe.yaml")["notes"]
    assert "a.ckpt: left out, because not of the model: epoch (int)" in notes


def test_protocol_of_the_pickle_does_not_matter(tmp_path: Path) -> None:
    for protocol in (2, 3, 4, 5):
        out = io.BytesIO()
        value = {"model": TENSORS, "step": 1}
        torch.save(value, out, pickle_protocol=protocol, pickle_module=pickle)
        (tmp_path / "a.pt").write_bytes(out.getvalue())
        check_tensors(opened(tmp_path / "a.pt"))
