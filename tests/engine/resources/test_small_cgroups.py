"""Promise: a merge in a cgroup much smaller than its models finishes with the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cgroups import MB, memory_cgroup
from merging_in_cgroups import Merging

from benchmarks.models import make_models

pytestmark = [pytest.mark.usefixtures("real_cgroups"), pytest.mark.cold_start]

TIES = """
merge_method: ties
base_model: {}
models:
  - {{model: {}, parameters: {{weight: 0.5, density: 0.5}}}}
  - {{model: {}, parameters: {{weight: 0.5, density: 0.5}}}}
dtype: bfloat16
"""


def test_a_gigabyte_in_a_cgroup_of_400_megabytes(large_llamas: Path, tmp_path: Path) -> None:
    """The merge reads and writes 1.1 GB, a part of it twice, in a cgroup of 400 MB."""
    recipe = TIES.format("base", "math", "code")
    _same_in_a_cgroup(large_llamas, tmp_path, recipe, 400 * MB)


@pytest.mark.parametrize("size", ["0.85b", "1.5b"])
def test_models_of_gigabytes_in_700_megabytes(
    size: str, soak: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The largest tensors have 131 MB and 1.6 GB; the limit at most doubles the time."""
    if not soak:
        pytest.skip("takes minutes and 7 to 13 GB of disk: with --soak")
    folder = tmp_path_factory.mktemp(size)
    models = make_models(size, 2, folder)
    try:
        times = _same_in_a_cgroup(folder, folder, TIES.format(*models), 700 * MB)
        assert times[1] <= 2.0 * times[0], times
    finally:
        shutil.rmtree(folder)


def _same_in_a_cgroup(models: Path, folder: Path, recipe: str, limit: int) -> tuple[float, float]:
    """Merge without a limit and with one, each time with no model in the page cache.

    Returns:
        the seconds of merging, without and with the limit.
    """
    free, limited = (Merging(models, folder / name, recipe) for name in ("free", "limited"))
    seconds = free.run(None)
    with memory_cgroup(limit) as group:
        beside = limited.run(group)
        assert group.kills == 0
    assert limited.same_shards_as(free)
    status = limited.status()
    assert len(status["attempts"]) == 1
    assert status["memory"]["peak_rss"] <= limit
    shutil.rmtree(free.out)
    shutil.rmtree(limited.out)
    return seconds, beside
