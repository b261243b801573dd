"""Wheels that uv can install, and two models on the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback_hub import Hub
from tiny_models import LLAMA, write_family
from uv_wheels import Wheels

CONFIG = {**LLAMA, "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 8}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Make the wheels that uv can install."""
    return Wheels(tmp_path_factory.mktemp("uv") / "index")


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the models `math` and `code`, of 4 MB each, and their base."""
    return write_family(tmp_path_factory.mktemp("family"), CONFIG)


@pytest.fixture
def models(hub: Hub, family: Path) -> Hub:
    """Commit the models `math` and `code` to the Hub, and return it."""
    for name in ("math", "code"):
        files = {path.name: path.read_bytes() for path in (family / name).iterdir()}
        hub.commit(f"org/{name}", files)
    return hub
