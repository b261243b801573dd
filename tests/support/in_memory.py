"""A test's folder in memory, for tests that ask nothing of a disk: merges wait for none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["tmp_path"]


@pytest.fixture
def tmp_path(workplace: Path) -> Iterator[Path]:
    """A folder of the test, which is removed after it."""
    with tempfile.TemporaryDirectory(dir=workplace) as folder:
        yield Path(folder)
