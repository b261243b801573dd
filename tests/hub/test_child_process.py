"""The engine runs as a child process: configured by its environment, quiet, cheap to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hub_models import single
from loopback_hub import Hub

pytestmark = pytest.mark.cold_start

ROOT = Path(__file__).parents[2]
MERGE = """
from resumerge.recipe.types import ModelRef
from resumerge.sources.remote.hub import open_hub_model
from resumerge.sources.remote.files import fetch
source = open_hub_model(ModelRef("org/model", "org/model"))
fetch(source, source.files)
print(source.folder)
"""
IMPORT = """
import sys
import resumerge.sources.remote.hub
import resumerge.sources.remote.files
heavy = {"huggingface_hub", "torch", "requests", "httpx", "httpx2"} & set(sys.modules)
assert not heavy, heavy
"""


def child(code: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_child_uses_the_cache_that_its_environment_names_and_draws_no_bars(hub: Hub) -> None:
    hub.commit("org/model", single())
    done = child(MERGE, hub.env())
    folder = Path(done.stdout.strip())
    assert folder.is_relative_to(hub.home / "hub")
    assert (folder / "model.safetensors").read_bytes() == single()["model.safetensors"]
    assert done.stderr == ""


def test_import_brings_no_http_library(hub: Hub) -> None:
    child(IMPORT, hub.env())
