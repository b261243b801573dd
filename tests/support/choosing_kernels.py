"""A fixture that chooses the kernels that compute."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from resumerge import native


@pytest.fixture
def use_kernels() -> Iterator[Callable[[str], None]]:
    """Compute with the kernels compiled for an instruction set, in this process."""
    yield native.use
    sets = native.instruction_sets()
    wanted = os.environ.get(native.INSTRUCTION_SET)
    native.use(wanted if wanted in sets else sets[-1])
