"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_points import crash_points
from crashing import RECIPE, Bench, Driver, Ended
from tiny_models import LLAMA, TWO_LAYERS, write_family


@pytest.fixture(scope="session")
def models(workplace: Path) -> Path:
    """Write `base`, `math` and `code`, each with embeddings of five blocks."""
    folder = write_family(workplace / "models", TWO_LAYERS)
    (folder / "base" / "tokenizer.json").write_text('{"model": {}}')
    (folder / "base" / "1_Pooling").mkdir()
    (folder / "base" / "1_Pooling" / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="session")
def drivers() -> Iterator[list[Driver]]:
    """Yield as many drivers as merge at a time; each of them imports torch once."""
    drivers = [Driver() for _ in range(2)]
    yield drivers
    for driver in drivers:
        driver.close()


@pytest.fixture(scope="session")
def bench(drivers: list[Driver], workplace: Path, models: Path) -> Bench:
    """Return a bench for merges of 21 tensors in 35 blocks, four shards and about six batches."""
    return Bench(drivers, workplace / "merges", models, RECIPE, {"shard_size": 8000})


@pytest.fixture(scope="session")
def calm(bench: Bench) -> tuple[Ended, dict[str, bytes]]:
    """Merge without interruptions; return how the merge ended, and its output."""
    return bench.calm()


@pytest.fixture
def reference(calm: tuple[Ended, dict[str, bytes]]) -> dict[str, bytes]:
    """Return the output of the merge without interruptions."""
    return calm[1]


@pytest.fixture
def operations(calm: tuple[Ended, dict[str, bytes]]) -> int:
    """Return the number of operations of the merge without interruptions."""
    return len(calm[0].kinds)


@pytest.fixture
def points(calm: tuple[Ended, dict[str, bytes]], soak: bool) -> list[int]:
    """Return the operations at which that merge is stopped; with --soak all of them."""
    return crash_points(calm[0].kinds, soak)


@pytest.fixture(scope="session")
def many_blocks(request: pytest.FixtureRequest, workplace: Path, soak: bool) -> Path:
    """Write `base`, `math` and `code` of 167 blocks and 29 MB; with --soak of 134 M parameters."""
    if soak:
        return Path(request.getfixturevalue("large_llamas"))
    config = {**LLAMA, "hidden_size": 256, "intermediate_size": 512, "head_dim": 128}
    config |= {"vocab_size": 8192, "num_hidden_layers": 18, "dtype": "bfloat16"}
    return write_family(workplace / "many blocks", config, dtype="bfloat16")
