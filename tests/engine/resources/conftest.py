"""Fixtures of the memory tests: real cgroups, or a reason why there are none."""

from __future__ import annotations

import pytest
from cgroups import memory_cgroup


@pytest.fixture(scope="session", autouse=True)
def _cgroups_can_be_made() -> None:
    try:
        with memory_cgroup(1 << 30):
            pass
    except PermissionError as error:
        pytest.skip(str(error))
