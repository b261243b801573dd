"""Fixtures of the memory tests: real cgroups, or a reason why there are none."""

from __future__ import annotations

import pytest
from cgroups import memory_cgroup


@pytest.fixture(scope="session")
def real_cgroups() -> None:
    """Skip the tests that make cgroups where none can be made."""
    try:
        with memory_cgroup(1 << 30):
            pass
    except PermissionError as error:
        pytest.skip(str(error))
