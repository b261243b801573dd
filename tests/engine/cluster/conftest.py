"""Fixtures of tests of tasks and their driver without Ray: models, shards of a run, a driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver_bench import Bench, ComputedShards, Make
from shard_tasks import RECIPES, Shards
from tiny_models import LLAMA, write_family


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


@pytest.fixture(scope="module")
def computed(models: Path, tmp_path_factory: pytest.TempPathFactory) -> ComputedShards:
    """Make a run whose shards were computed once."""
    return ComputedShards(Shards(models, RECIPES["ties"], tmp_path_factory.mktemp("run")))


@pytest.fixture
def make(computed: ComputedShards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that makes a driver of such a run, with some options."""
    return lambda **options: Bench(computed, tmp_path, monkeypatch, **options)


@pytest.fixture
def bench(make: Make) -> Bench:
    return make()
