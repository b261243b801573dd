"""Models that take a few seconds with a slow method, and merges of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from supervised import Supervised
from supervisors import Supervise, Supervising
from tiny_models import LLAMA, write_family


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write models of six million parameters, which a merge computes in 52 blocks."""
    config = {
        **LLAMA,
        "hidden_size": 256,
        "intermediate_size": 512,
        "head_dim": 128,
        "vocab_size": 8192,
    }
    return write_family(tmp_path_factory.mktemp("models"), config)


@pytest.fixture
def new_merge(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Callable[[], Supervised]:
    return lambda: Supervised(tmp_path_factory.mktemp("merge"), models)


@pytest.fixture
def merge(new_merge: Callable[[], Supervised]) -> Supervised:
    """Make a merge that has not begun."""
    return new_merge()


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, models: Path) -> dict[str, bytes]:
    """Return the files that an undisturbed merge writes."""
    calm = Supervised(tmp_path_factory.mktemp("calm"), models, {"SLOWLY_SECONDS": "0"})
    calm.go_on()
    process = calm.start()
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    return calm.files()


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    running: list[Supervising] = []

    def start(program: str, stall: float = 0.0) -> Supervising:
        running.append(Supervising(program, stall))
        return running[-1]

    yield start
    for supervising in running:
        supervising.process.kill()
        supervising.process.communicate()
