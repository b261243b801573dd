"""A place where the notebook is executed, and models for it on the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback_hub.hub import Hub
from notebook_kernels import Hands, tiny_llamas


@pytest.fixture(scope="session")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Return the files of the models, by the names of their repos."""
    return tiny_llamas(tmp_path_factory.mktemp("llamas"))


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, bytes]:
    """Return a dictionary for the uninterrupted model, which the first test that needs it fills."""
    return {}


@pytest.fixture
def hands(
    llamas: dict[str, dict[str, bytes]], hub: Hub, tmp_path: Path, undisturbed: dict[str, bytes]
) -> Hands:
    """Commit the models to the Hub, and return hands with a folder of their own."""
    for name, files in llamas.items():
        hub.commit(f"org/{name}", files)
    return Hands(hub, tmp_path, undisturbed)
