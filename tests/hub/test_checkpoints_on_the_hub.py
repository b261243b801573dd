"""Checkpoints on the Hub: one file of a repo, or a repo without a config.json."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from loopback_hub import Hub
from merges import Place
from merging import tensors_of
from safetensors.torch import save
from torch import Tensor

TENSORS: dict[str, Tensor] = {
    "net.weight": torch.randn(300, 200, generator=torch.Generator().manual_seed(0)),
    "net.bias": torch.randn(200, generator=torch.Generator().manual_seed(1)),
}
DOUBLE = {name: 2 * tensor for name, tensor in TENSORS.items()}
RECIPE = (
    "merge_method: linear\nparameters: {weight: 1}\n"
    "models: [{model: org/files/deep/b.pt}, {model: org/training}]\n"
)


def pickled(tensors: dict[str, Tensor]) -> bytes:
    out = io.BytesIO()
    torch.save(tensors, out)
    return out.getvalue()


def test_merged_and_found_again_without_the_network(hub: Hub, tmp_path: Path) -> None:
    """The output is one file, because the first model is one file."""
    other = save({"x": torch.zeros(9)})
    hub.commit("org/files", {"a.safetensors": other, "deep/b.pt": pickled(TENSORS)})
    weights = {"step_10.safetensors": save(DOUBLE), "optimizer.pt": b"state", "notes.txt": b""}
    hub.commit("org/training", weights)
    place = Place(hub, tmp_path / "place", RECIPE)
    plan = place.document("plan", "merge.yaml")
    assert plan["problems"] == []
    assert plan["download"]["files"] == 2
    place.call("run", "merge.yaml", "out/merged.safetensors")
    assert [path.name for path in (tmp_path / "place/out").iterdir()] == ["merged.safetensors"]
    found = tensors_of(tmp_path / "place/out")
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        torch.testing.assert_close(found[name], 1.5 * tensor)
    asked = [request.path for request in hub.requests]
    assert not any(path.endswith(("a.safetensors", "optimizer.pt")) for path in asked)
    again = place.document("plan", "merge.yaml", "--offline")
    assert (again["problems"], again["download"]["bytes"]) == ([], 0)


def test_a_file_that_the_repo_lacks_is_a_problem_at_its_line(hub: Hub, tmp_path: Path) -> None:
    hub.commit("org/files", {"a.safetensors": save(TENSORS), "README.md": b""})
    hub.commit("org/training", {"a.safetensors": save(TENSORS)})
    place = Place(hub, tmp_path / "place", RECIPE)
    [problem] = place.document("plan", "merge.yaml", expect=2)["problems"]
    assert problem["what"].startswith("The model's file does not exist: org/files@")
    assert (problem["line"], problem["path"]) == (3, "models[0].model")
    assert (problem["expected"], problem["found"]) == ("deep/b.pt", "a.safetensors")
