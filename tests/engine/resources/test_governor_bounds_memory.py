"""Pressure halves the batch, calm raises it again, and each change is an event with its reason."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from resumerge.engine.resources import governor
from resumerge.engine.resources.governor import LARGEST_BATCH, SMALLEST_BATCH, Governor
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Resumable
from resumerge.host import memory as host_memory
from resumerge.host.memory import Cgroup, Memory, MemoryGauge
from resumerge.planning.estimates.memory import MemoryNeed

GB = 10**9
MB = 10**6
BUDGET = 2 * GB
NEED = MemoryNeed(base=GB, held=0, least=50 * MB, blocks=100 * MB, traffic=5 * GB)


class Machine:
    """A machine whose memory the test sets."""

    def __init__(self, memory_wait: float = 600.0) -> None:
        self.available = 8 * GB
        self.total = 16 * GB
        self.stalled = 0.0
        self.rss = GB
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.notes: list[str] = []
        self.governor = Governor(
            BUDGET,
            NEED,
            lambda kind, **facts: self.events.append((kind, facts)),
            self.notes.append,
            memory_wait,
            lambda: Memory(self.total, self.available, "the cgroup job", self.stalled),
            lambda: self.rss,
        )

    def look(self, times: int = 1) -> int:
        """The batch size after so many measurements."""
        for _ in range(times):
            self.governor.look()
        return self.governor.batch_bytes

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.look()
    return machine


@pytest.fixture
def no_calm_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governor, "CALM_SECONDS", 0.0)


def test_with_memory_to_spare_nothing_changes(machine: Machine) -> None:
    assert machine.look(5) == LARGEST_BATCH
    assert machine.events == []


def test_another_process_taking_memory_halves_the_batch_and_is_named(machine: Machine) -> None:
    machine.available = GB // 2
    assert machine.look() == LARGEST_BATCH // 2
    [(kind, facts)] = machine.events
    assert kind == "batch_lowered"
    reason = "another process took 7.5 GB; the cgroup job has 500 MB left of 16 GB"
    assert facts == {
        "reason": reason,
        "before": LARGEST_BATCH,
        "after": LARGEST_BATCH // 2,
        "rss": GB,
        "available": GB // 2,
    }


def test_the_batch_falls_while_there_is_still_room_for_a_smaller_one(machine: Machine) -> None:
    """Before the limit: beside the margin, and what the process has yet to grow by."""
    margin, growth = governor.margin(machine.total), NEED.peak_rss - machine.rss
    machine.available = margin + growth + LARGEST_BATCH - 1
    assert machine.look() == LARGEST_BATCH // 2
    assert machine.look(5) == LARGEST_BATCH // 2


def test_this_process_above_its_budget_halves_the_batch(machine: Machine) -> None:
    machine.rss = int(BUDGET * 1.01)
    assert machine.look() == LARGEST_BATCH // 2
    assert machine.events[0][1]["reason"] == "this process has 2.02 GB, its budget is 2 GB"


def test_time_lost_in_waiting_for_memory_halves_the_batch(machine: Machine) -> None:
    machine.stalled = 0.4
    assert machine.look() == LARGEST_BATCH // 2
    assert machine.events[0][1]["reason"] == "everything waited for memory 40% of the time"


def test_a_batch_is_a_small_share_of_a_small_memory(machine: Machine) -> None:
    machine.total, machine.available = 400 * MB, 380 * MB
    machine.rss = NEED.peak_rss
    assert machine.look(50) <= machine.total // 8


def test_lasting_pressure_stops_at_the_smallest_batch(machine: Machine) -> None:
    machine.available = 0
    assert machine.look(50) == SMALLEST_BATCH
    assert len(machine.events) == 5  # 128 MiB halved to 4 MiB, then silence


def test_calm_raises_the_batch_again_step_by_step(machine: Machine, no_calm_needed: None) -> None:
    machine.available = 0
    lowest = machine.look(50)
    machine.events.clear()
    machine.available = 8 * GB
    assert lowest < machine.look() < LARGEST_BATCH
    assert machine.look(50) == LARGEST_BATCH
    assert set(machine.kinds()) == {"batch_raised"}
    assert machine.events[0][1]["reason"] == "another process gave back 8 GB"


def test_calm_must_last(machine: Machine) -> None:
    machine.available = 0
    machine.look()
    machine.available = 8 * GB
    assert machine.look(10) == LARGEST_BATCH // 2


def test_the_peak_is_remembered(machine: Machine) -> None:
    for machine.rss in (2 * MB, 3 * GB, 4 * MB):
        machine.look()
    assert machine.governor.peak_rss == 3 * GB
    assert machine.governor.rss == 4 * MB


def test_it_begins_with_a_batch_that_fits(machine: Machine) -> None:
    machine.available = governor.margin(machine.total) + 130 * MB
    with machine.governor:
        assert machine.governor.batch_bytes == LARGEST_BATCH // 8
    assert machine.kinds() == ["batch_lowered"]


def test_it_watches_by_itself_while_it_is_entered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor, "SAMPLE_SECONDS", 0.001)
    with machine.governor:
        machine.available = 0
        deadline = time.monotonic() + 10
        while machine.governor.batch_bytes > SMALLEST_BATCH and time.monotonic() < deadline:
            time.sleep(0.001)
    assert machine.governor.batch_bytes == SMALLEST_BATCH


def test_without_room_for_a_block_the_run_waits_says_so_and_goes_on(machine: Machine) -> None:
    machine.available = 200 * MB
    machine.look()
    with machine.governor:
        threading.Timer(0.5, lambda: setattr(machine, "available", 8 * GB)).start()
        started = time.monotonic()
        machine.governor.wait_for_memory(StopRequest())
    assert 0.4 < time.monotonic() - started < 5.0
    assert [kind for kind in machine.kinds() if "batch" not in kind] == ["waiting", "went_on"]
    [note] = machine.notes
    assert note.startswith("Waiting for memory: another process took 7.8 GB; the cgroup job has")


def test_waiting_ends_after_a_bounded_time_with_advice() -> None:
    machine = Machine(memory_wait=0.2)
    machine.available = 100 * MB
    with machine.governor, pytest.raises(Resumable, match="End other programs") as stopped:
        machine.governor.wait_for_memory(StopRequest())
    assert (stopped.value.exit_code, stopped.value.reason) == (75, "memory")
    assert machine.kinds()[-1] == "gave_up_waiting"


def test_a_signal_ends_the_waiting(machine: Machine) -> None:
    machine.available = 0
    machine.look()
    stop = StopRequest()
    stop.signum = 15
    machine.governor.wait_for_memory(stop)


def test_page_cache_is_left_alone_where_there_is_plenty(machine: Machine) -> None:
    assert not machine.governor.cache_is_scarce
    machine.total = machine.available = 8 * GB
    machine.look()
    assert machine.governor.cache_is_scarce


def cgroup(folder: Path, version: str, texts: dict[str, str], own: bool = True) -> Cgroup:
    """A folder that looks like a cgroup."""
    for name, text in texts.items():
        (folder / name).write_text(text + "\n")
    return Cgroup(folder, host_memory._V2 if version == "v2" else host_memory._V1, own)


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
    monkeypatch.setattr(host_memory, "cgroups", lambda: [group])
    found = MemoryGauge().measure()
    assert (found.total, found.available) == (1_000_000, 500_000)
    assert found.bound == f"the cgroup {tmp_path.name}"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_smallest_limit_of_all_cgroups_above_counts(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used = NAMES[version]
    inner, outer = tmp_path / "outer" / "inner", tmp_path / "outer"
    inner.mkdir(parents=True)
    groups = [
        cgroup(inner, version, {limit: "9000000", used: "100000", "memory.stat": STAT[version]}),
        cgroup(
            outer, version, {limit: "2000000", used: "1900000", "memory.stat": STAT[version]}, False
        ),
    ]
    monkeypatch.setattr(host_memory, "cgroups", lambda: groups)
    found = MemoryGauge().measure()
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
    monkeypatch.setattr(host_memory, "cgroups", lambda: [group])
    assert MemoryGauge().measure().total == 1_000_000


def test_memory_high_limits_as_memory_max_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"memory.max": "max", "memory.high": "800000", "memory.current": "100000"}
    group = cgroup(tmp_path, "v2", texts)
    monkeypatch.setattr(host_memory, "cgroups", lambda: [group])
    assert MemoryGauge().measure().available == 700_000


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
    monkeypatch.setattr(host_memory, "cgroups", lambda: [group])
    assert MemoryGauge().measure().total > 100_000_000


def test_cgroups_are_found_where_a_container_mounts_its_own_as_the_root() -> None:
    mounts = [
        "36 32 0:31 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "37 32 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    ]
    found = host_memory._mounted(mounts, "cgroup", "memory")
    assert found == (Path("/docker/abc"), Path("/sys/fs/cgroup/memory"))
    assert host_memory._mounted(mounts, "cgroup2", "") == (
        Path("/"),
        Path("/sys/fs/cgroup/unified"),
    )


def test_watching_costs_less_than_one_percent_of_a_core() -> None:
    gauge = MemoryGauge()
    watching = Governor(BUDGET, NEED, lambda kind, **facts: None, measure=gauge.measure)
    started = time.process_time()
    for _ in range(200):
        watching.look()
    seconds = (time.process_time() - started) / 200
    assert seconds / governor.SAMPLE_SECONDS < 0.01
