"""Every instruction set in turn."""

from __future__ import annotations

import pytest
from both_ways import SETS, Use


@pytest.fixture(params=SETS)
def compiled(request: pytest.FixtureRequest, use_kernels: Use) -> str:
    """The instruction set whose kernels compute."""
    use_kernels(request.param)
    return str(request.param)
