"""Fixtures of the memory tests: real cgroups, or a reason why there are none."""

from __future__ import annotations

import pytest
from cgroups import memory_cgroup


@pytest.fixture(scope="session")
def real_cgroups() -> None:
    """For tests that make cgroups; the others run everywhere."""
    try:
        with memory_cgroup(1 << 30):
            pass
    except PermissionError as error:
        pytest.skip(str(error))
