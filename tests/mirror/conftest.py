"""Fixtures of the tests of mirrors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirrored import Bench
from tiny_models import LLAMA, write_family


@pytest.fixture(scope="session")
def workplace() -> Iterator[Path]:
    """A folder in memory where there is room."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
    with tempfile.TemporaryDirectory(dir=memory if roomy else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def small_models(workplace: Path) -> Path:
    """`base`, `math` and `code`, with 21 tensors each."""
    return write_family(workplace / "models", {**LLAMA, "num_hidden_layers": 2, "vocab_size": 160})


@pytest.fixture(scope="session")
def bench(workplace: Path, small_models: Path) -> Iterator[Bench]:
    """Makes merges of four shards."""
    bench = Bench(workplace / "merges", small_models)
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def reference(bench: Bench) -> dict[str, bytes]:
    """The files of the merge that nothing disturbs, without a mirror."""
    merge = bench.merge()
    merge.options["mirror"] = None
    ended = merge.run()
    assert ended.code == 0, ended.stderr
    return merge.model()
