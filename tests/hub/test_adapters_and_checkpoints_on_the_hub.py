"""Models with adapters, and torch checkpoints, on the Hub: planned from kilobytes, then fetched."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from hub_models import CONFIG
from loopback_hub import Hub
from merges import Place
from merging import tensors_of
from safetensors.torch import save
from torch import Tensor

TUNED = "model.layers.0.mlp.down_proj.weight"
BASE: dict[str, Tensor] = {
    TUNED: torch.randn(600, 700),
    "model.layers.1.mlp.down_proj.weight": torch.randn(600, 700),
}
KEY = "base_model.model." + TUNED.removesuffix(".weight")
ADAPTER = {f"{KEY}.lora_A.weight": torch.ones(2, 700), f"{KEY}.lora_B.weight": torch.ones(600, 2)}
SETTINGS = json.dumps({"peft_type": "LORA", "lora_alpha": 4}).encode()
RECIPE = "merge_method: passthrough\nmodels: [{model: org/base+org/adapter}]\n"


def repo(tensors: dict[str, Tensor], name: str, config: bytes, pickled: bool) -> dict[str, bytes]:
    """Return the files of a model or an adapter, in either format."""
    folder = "adapter_" if name == "adapter" else ""
    if not pickled:
        return {f"{folder}config.json": config, f"{folder or ''}model.safetensors": save(tensors)}
    out = io.BytesIO()
    torch.save(tensors, out)
    weights = f"{folder}model.bin" if folder else "pytorch_model.bin"
    return {f"{folder}config.json": config, weights: out.getvalue()}


@pytest.mark.parametrize("pickled", [False, True])
def test_merged_from_the_hub(pickled: bool, hub: Hub, tmp_path: Path) -> None:
    commits = [
        hub.commit("org/base", repo(BASE, "base", CONFIG, pickled) | {"tokenizer.json": b"{}"}),
        hub.commit(
            "org/adapter",
            repo(ADAPTER, "adapter", SETTINGS, pickled)
            | {"tokenizer.json": b'{"more": 1}', "tokenizer_config.json": b"{}"},
        ),
    ]
    place = Place(hub, tmp_path / "place", RECIPE)
    plan = place.document("plan", "merge.yaml")
    assert plan["problems"] == []
    [source] = plan["sources"]
    assert (source["kind"], source["revision"]) == ("lora", "+".join(commits))
    assert plan["download"]["files"] == 2
    assert sum(request.sent for request in hub.requests) < 400_000
    place.call("run", "merge.yaml", "out")
    found = tensors_of(tmp_path / "place" / "out")
    torch.testing.assert_close(found[TUNED], BASE[TUNED] + 2.0 * 2, rtol=1e-6, atol=1e-6)
    other = "model.layers.1.mlp.down_proj.weight"
    assert torch.equal(found[other], BASE[other])
    assert (tmp_path / "place" / "out" / "tokenizer.json").read_bytes() == b'{"more": 1}'
    hub.forget_requests()
    place.call("run", "merge.yaml", "again")
    assert hub.files_served() == {}
    checked = place.document("cache", "check", "merge.yaml")
    states = {file["file"]: file["state"] for file in checked["files"]}
    assert set(states.values()) == {"intact"}
    assert any("adapter_model" in name for name in states)


def test_offline_names_what_is_missing_of_the_adapter(hub: Hub, tmp_path: Path) -> None:
    hub.commit("org/base", repo(BASE, "base", CONFIG, False))
    hub.commit("org/adapter", repo(ADAPTER, "adapter", SETTINGS, False))
    place = Place(hub, tmp_path / "place", RECIPE)
    place.call("run", "merge.yaml", "out")
    blob = place.blob("org/adapter", "adapter_model.safetensors")
    blob.unlink()
    told = place.call("run", "merge.yaml", "again", "--offline", expect=2).stderr
    assert "adapter_model.safetensors" in told
    assert "org/adapter@" in told


def test_a_moved_branch_of_the_adapter_does_not_move_a_run(hub: Hub, tmp_path: Path) -> None:
    hub.commit("org/base", repo(BASE, "base", CONFIG, False))
    hub.commit("org/adapter", repo(ADAPTER, "adapter", SETTINGS, False))
    place = Place(hub, tmp_path / "place", RECIPE)
    place.call("run", "merge.yaml", "out")
    before = tensors_of(tmp_path / "place" / "out")
    moved = {name: tensor * 5 for name, tensor in ADAPTER.items()}
    hub.commit("org/adapter", repo(moved, "adapter", SETTINGS, False))
    (tmp_path / "place" / "out" / "model.safetensors").unlink()
    place.call("resume")
    after = tensors_of(tmp_path / "place" / "out")
    assert torch.equal(before[TUNED], after[TUNED])
