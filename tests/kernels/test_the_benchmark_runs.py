"""`python -m benchmarks.kernels` calls the kernels as they are."""

import pytest

from benchmarks.kernels import cases


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_every_case_runs(case):  # type: ignore[no-untyped-def]
    case.ours()
