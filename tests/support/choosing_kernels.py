"""A fixture that chooses the kernels for a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from resumerge import native


@pytest.fixture
def use_kernels() -> Iterator[Callable[[str], None]]:
    """Yield a function that has this process compute with the kernels of an instruction set."""
    yield native.use
    sets = native.instruction_sets()
    wanted = os.environ.get(native.INSTRUCTION_SET)
    native.use(wanted if wanted in sets else sets[-1])
