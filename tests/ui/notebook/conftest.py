"""A place where the notebook is executed, and models for it on the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback_hub.hub import Hub
from notebook_kernels import Hands, tiny_llamas


@pytest.fixture
def hands(hub: Hub, tmp_path: Path) -> Hands:
    """Execute the notebook in a folder of its own."""
    for name, files in tiny_llamas(tmp_path / "made").items():
        hub.commit(f"org/{name}", files)
    return Hands(hub, tmp_path)
