"""Promise: sources come as far as what is lacking here and there needs them; no token stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from loopback_hub import Hub
from machines import (
    HELD,
    SHARD_SIZE,
    SLOW,
    Machine,
    files_of,
    in_mirror,
    kill,
    resume_line,
)
from tiny_models import LLAMA, write_family
from waiting import wait_until

REPO, MIRROR = "org/merged", "hf://org/merged"
ON_THE_HUB = "merge_method: slowly\nmodels: [{model: org/math}, {model: org/code}]\n"


def environment(hub: Hub, **more: str) -> dict[str, str]:
    """Return the variables that lead to the Hub, with a lease that a test can wait for."""
    settings = {k: v for k, v in hub.settings.items() if k != "HF_HOME"}
    return {**settings, "HF_HUB_OFFLINE": "0", "RESUMERGE_LEASE_SECONDS": "3", **more}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path / "models", LLAMA)


def has_shards(hub: Hub, count: int) -> bool:
    """Return whether the repo has so many shards, or is finished."""
    if REPO not in hub.repos:
        return False
    names = hub.contents(REPO)
    return sum(name.endswith(".safetensors") for name in names) >= count or "config.json" in names


def test_sources_are_fetched_only_as_far_as_what_is_lacking_needs_them(
    hub: Hub, models: Path, tmp_path: Path
) -> None:
    """A shard that is sealed in the mirror needs no source, and the second machine has no cache."""
    for name in ("math", "code"):
        hub.commit(f"org/{name}", sharded(models / name))
    env = environment(hub, **SLOW)
    first = Machine(tmp_path / "first", recipe=ON_THE_HUB, environment=env)
    first.hold(30)
    mirror = tmp_path / "mirror"
    process = first.begin(mirror, "--no-supervise")
    wait_until(lambda: len(in_mirror(mirror).sealed) >= 4, process)
    kill(process)
    kept = {row["number"]: row["name"] for row in first.rows("SELECT number, name FROM units")}
    there = in_mirror(mirror)
    lacking = {name for number, name in kept.items() if number not in there.units}
    first.wipe()
    hub.forget_requests()
    second = Machine(tmp_path / "second", recipe=ON_THE_HUB, environment=env)
    second.call("resume", mirror, "--threads", "1", SLOWLY_SECONDS="0")
    served = hub.files_served()
    fetched = {name for name in FILES if served.get(name, 0) > HEADERS}
    assert fetched <= {file_of(name) for name in lacking} < set(FILES)
    done = Machine(tmp_path / "third", recipe=ON_THE_HUB, environment=env)
    done.call("run", "recipe.yaml", "merged", "--shard-size", SHARD_SIZE, SLOWLY_SECONDS="0")
    assert files_of(mirror) == files_of(done.out)


HEADERS = 500_000
"""Bytes that reading headers takes at most; each file has more than twice that."""

FILES = [f"model-{n + 1:05}-of-00004.safetensors" for n in range(4)]


def file_of(tensor: str) -> str:
    """Return the source file of a tensor: one for each layer, the last one for all others."""
    parts = tensor.split(".")
    layer = int(parts[2]) if parts[1] == "layers" else 3
    return FILES[layer]


def sharded(folder: Path) -> dict[str, bytes]:
    """Return the files of a model as a repo, each of them much larger than its header."""
    import json

    import torch
    from safetensors.torch import load_file, save

    tensors = load_file(folder / "model.safetensors")
    groups: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(file_of(name), {})[name] = tensor
    for file, group in groups.items():
        number = FILES.index(file)
        group[f"model.layers.{number}.self_attn.rotary_emb.inv_freq"] = torch.ones(300_000)
    weight_map = {name: file for file, group in groups.items() for name in group}
    index = {"metadata": {}, "weight_map": weight_map}
    return {
        "config.json": (folder / "config.json").read_bytes(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{file: save(group, metadata={"format": "pt"}) for file, group in groups.items()},
    }


def test_a_token_is_in_nothing_that_is_left(hub: Hub, models: Path, tmp_path: Path) -> None:
    token = "hf_secretsecretsecretsecret"
    hub.tokens = {token: "write"}
    env = environment(hub, HF_TOKEN=token, **SLOW)
    machine = Machine(tmp_path / "m", models, environment=env)
    machine.hold(HELD)
    process = machine.begin(MIRROR, "--no-supervise")
    wait_until(lambda: has_shards(hub, 1), process)
    process.terminate()
    _, err = process.communicate()
    machine.let_go()  # not before: it could finish before it has handled the signal
    assert process.returncode == 143, err
    line = resume_line(err)
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in left if token.encode() in path.read_bytes()]
    assert not [name for name, data in hub.contents(REPO).items() if token.encode() in data]
    assert token not in err
    done: subprocess.CompletedProcess[str] = machine.call_line(line, SLOWLY_SECONDS="0")
    assert done.returncode == 0, done.stderr
    assert token not in done.stderr
