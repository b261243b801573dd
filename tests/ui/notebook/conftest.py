"""A place where the notebook is executed, and models for it on the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback_hub.hub import Hub
from notebook_kernels import Hands, tiny_llamas


@pytest.fixture(scope="session")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files of the models, by the names of their repos."""
    return tiny_llamas(tmp_path_factory.mktemp("llamas"))


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, bytes]:
    """The model that nothing interrupts, once a test has asked for it."""
    return {}


@pytest.fixture
def hands(
    llamas: dict[str, dict[str, bytes]], hub: Hub, tmp_path: Path, undisturbed: dict[str, bytes]
) -> Hands:
    """Execute the notebook in a folder of its own."""
    for name, files in llamas.items():
        hub.commit(f"org/{name}", files)
    return Hands(hub, tmp_path, undisturbed)
