"""A test's folder in memory, for tests that need no disk: their merges do not wait for one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["tmp_path"]


@pytest.fixture
def tmp_path(workplace: Path) -> Iterator[Path]:
    """Yield a folder for the test, and remove it afterwards."""
    with tempfile.TemporaryDirectory(dir=workplace) as folder:
        yield Path(folder)
