"""Promise: Python functions find, verify and bring back a model that only its mirror has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import xxhash
from loopback_hub.hub import Hub
from tiny_models import write_family

import resumerge
from resumerge.mirror.manifest import read_manifest
from resumerge.mirror.stores.folder import FolderStore

ROOT = Path(__file__).parents[3]

RECIPE = """merge_method: linear
parameters: {weight: 1}
models: [{model: MODELS/math}, {model: MODELS/code}]
"""

ON_THE_HUB = """
import resumerge
url = "hf://org/merged"
first = resumerge.run("recipe.yaml", "merged", mirror=url)
assert not first.already_done and first.mirror == url, first
assert resumerge.status(url)["runs"][0]["state"] == "done"
assert resumerge.verify(url).intact
there = dict(state_dir="other")
assert resumerge.resume(url, **there).where == url
again = resumerge.run("recipe.yaml", "elsewhere", mirror=url, **there)
assert again.already_done and again.where == url
resumerge.resume(url, bring_back=True, output="back", **there)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_family(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(RECIPE.replace("MODELS", str(tmp_path / "models")))
    return tmp_path


def model_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def say(mirror: Path, **facts: object) -> None:
    """Change facts in the manifest of a mirror, and give it a valid checksum."""
    path = mirror / ".resumerge" / "done.json"
    said = json.loads(path.read_text()) | facts
    del said["checksum"]
    said = {key: value for key, value in said.items() if value is not None}
    checksum = xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())
    path.write_text(json.dumps({**said, "checksum": checksum}))


def test_a_repo_of_the_hub_in_every_call(store: Path, hub: Hub) -> None:
    env = {**os.environ, **hub.settings, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_test"}
    env |= {"PYTHONPATH": str(ROOT), "HF_HOME": str(store / "hf")}
    subprocess.run([sys.executable, "-c", ON_THE_HUB], env=env, check=True)
    assert model_in(store / "back") == model_in(store / "merged")
    assert not (store / "elsewhere").exists()
    assert not (store / "hf:").exists()


def test_the_result_names_what_is_there_and_brings_it_back(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = store / "far"
    resumerge.run("recipe.yaml", "merged", mirror=far)
    model = model_in(store / "merged")
    (store / "machine").mkdir()
    monkeypatch.chdir(store / "machine")
    result = resumerge.run("../recipe.yaml", "merged", mirror=far)
    assert result.already_done
    assert result.output == far
    assert result.places == result.where == str(far)
    assert not Path("merged").exists()
    resumerge.resume(str(far), bring_back=True, output="named")
    assert model_in(Path("named")) == model
    back = resumerge.resume(str(far), bring_back=True)
    assert back.output.samefile("merged"), "the name that it had"
    assert model_in(Path("merged")) == model
    assert back.places == f"{back.output}, and {far}"


@pytest.mark.parametrize("name", [None, "../up", "/root", ".hidden", 5, "", "a\nb"])
def test_a_name_that_is_unknown_or_leads_elsewhere(
    store: Path, name: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = store / "far"
    run = resumerge.run("recipe.yaml", "merged", mirror=far).id
    say(far, output=name)
    done = read_manifest(FolderStore(far))
    assert done is not None
    assert done.output is None
    (store / "machine").mkdir()
    monkeypatch.chdir(store / "machine")
    assert resumerge.resume(far, bring_back=True).output.samefile(run)
