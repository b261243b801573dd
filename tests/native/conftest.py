"""Every instruction set in turn."""

from __future__ import annotations

import pytest
from both_ways import SETS, Use


@pytest.fixture(params=SETS)
def compiled(request: pytest.FixtureRequest, use_kernels: Use) -> str:
    """Let the kernels of each instruction set compute, and return its name."""
    use_kernels(request.param)
    return str(request.param)
