"""Promise: what the cgroups leave of the memory counts, whatever their version and mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from resumerge.host import memory as host_memory
from resumerge.host.memory import Cgroup, Memory, MemoryGauge


def cgroup(folder: Path, version: str, texts: dict[str, str], own: bool = True) -> Cgroup:
    """Make a folder that looks like a cgroup."""
    for name, text in texts.items():
        (folder / name).write_text(text + "\n")
    return Cgroup(folder, host_memory._V2 if version == "v2" else host_memory._V1, own)


def measured(patch: pytest.MonkeyPatch, *groups: Cgroup) -> Memory:
    patch.setattr(host_memory, "cgroups", lambda: groups)
    return MemoryGauge().measure()


STAT = {
    "v1": "cache 1\ntotal_inactive_file 300000\ntotal_active_file 200000\n"
    "total_mapped_file 50000\ntotal_dirty 40000\ntotal_writeback 10000",
    "v2": "anon 1\ninactive_file 300000\nactive_file 200000\nfile_mapped 50000\n"
    "file_dirty 40000\nfile_writeback 10000",
}
NAMES = {
    "v1": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    "v2": ("memory.max", "memory.current"),
}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_page_cache_counts_as_available_where_it_is_clean_and_not_mapped(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used = NAMES[version]
    texts = {limit: "1000000", used: "900000", "memory.stat": STAT[version]}
    group = cgroup(tmp_path, version, texts)
    found = measured(monkeypatch, group)
    assert (found.total, found.available) == (1_000_000, 500_000)
    assert found.bound == f"the cgroup {tmp_path.name}"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_smallest_limit_of_all_cgroups_above_counts(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used = NAMES[version]
    inner, outer = tmp_path / "outer" / "inner", tmp_path / "outer"
    inner.mkdir(parents=True)
    stat = {"memory.stat": STAT[version]}
    found = measured(
        monkeypatch,
        cgroup(inner, version, {limit: "9000000", used: "100000", **stat}),
        cgroup(outer, version, {limit: "2000000", used: "1900000", **stat}, own=False),
    )
    assert (found.total, found.available) == (2_000_000, 500_000)


def test_a_limit_above_that_is_out_of_sight_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.usage_in_bytes": "600000",
        "memory.stat": STAT["v1"] + "\nhierarchical_memory_limit 1000000",
    }
    group = cgroup(tmp_path, "v1", texts)
    assert measured(monkeypatch, group).total == 1_000_000


def test_memory_high_limits_as_memory_max_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"memory.max": "max", "memory.high": "800000", "memory.current": "100000"}
    group = cgroup(tmp_path, "v2", texts)
    assert measured(monkeypatch, group).available == 700_000


def test_a_soft_limit_counts_only_where_the_machine_is_short(tmp_path: Path) -> None:
    texts = {
        "memory.limit_in_bytes": "2000000",
        "memory.soft_limit_in_bytes": "1000000",
        "memory.usage_in_bytes": "600000",
    }
    group = cgroup(tmp_path, "v1", texts)
    assert group.measure(soft=False) == (2_000_000, 1_400_000)
    assert group.measure(soft=True) == (1_000_000, 400_000)


def test_a_cgroup_without_limit_limits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = cgroup(tmp_path, "v2", {"memory.max": "max", "memory.current": "700000"})
    assert measured(monkeypatch, group).total > 100_000_000


def test_cgroups_are_found_where_a_container_mounts_its_own_as_the_root() -> None:
    mounts = [
        "36 32 0:31 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "37 32 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    ]
    found = host_memory._mounted(mounts, "cgroup", "memory")
    assert found == (Path("/docker/abc"), Path("/sys/fs/cgroup/memory"))
    found = host_memory._mounted(mounts, "cgroup2", "")
    assert found == (Path("/"), Path("/sys/fs/cgroup/unified"))
