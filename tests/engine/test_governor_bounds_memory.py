"""Pressure halves the batch, calm raises it again, and each change is an event with its reason."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from resumerge.engine import governor
from resumerge.engine.governor import LARGEST_BATCH, SMALLEST_BATCH, Governor
from resumerge.host.memory import Memory

GB = 10**9
BUDGET = 2 * GB


class Machine:
    """A machine whose memory the test sets."""

    def __init__(self) -> None:
        self.available = 8 * GB
        self.rss = GB
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.governor = Governor(
            BUDGET,
            lambda kind, **facts: self.events.append((kind, facts)),
            lambda: Memory(16 * GB, self.available),
            lambda: self.rss,
        )

    def look(self, times: int = 1) -> int:
        """The batch size after so many measurements."""
        for _ in range(times):
            self.governor.look()
        return self.governor.batch_bytes


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governor, "CALM_SECONDS", 0.0)


def test_with_memory_to_spare_nothing_changes(machine: Machine) -> None:
    assert machine.look(5) == LARGEST_BATCH
    assert machine.events == []


def test_other_processes_taking_memory_halve_the_batch(machine: Machine) -> None:
    machine.available = GB // 2
    assert machine.look() == LARGEST_BATCH // 2
    [(kind, facts)] = machine.events
    assert kind == "batch_lowered"
    assert facts == {
        "reason": "the machine is short of memory",
        "before": LARGEST_BATCH,
        "after": LARGEST_BATCH // 2,
        "rss": GB,
        "available": GB // 2,
    }


def test_this_process_near_its_budget_halves_the_batch(machine: Machine) -> None:
    machine.rss = int(BUDGET * 0.95)
    assert machine.look() == LARGEST_BATCH // 2
    assert machine.events[0][1]["reason"] == "this process is near its budget"


def test_lasting_pressure_stops_at_the_smallest_batch(machine: Machine) -> None:
    machine.available = 0
    assert machine.look(50) == SMALLEST_BATCH
    assert len(machine.events) == 5  # 128 MiB halved to 4 MiB, then silence


def test_calm_raises_the_batch_again_step_by_step(machine: Machine, no_patience: None) -> None:
    machine.available = 0
    lowest = machine.look(50)
    machine.events.clear()
    machine.available = 8 * GB
    assert lowest < machine.look() < LARGEST_BATCH
    assert machine.look(50) == LARGEST_BATCH
    assert {(kind, facts["reason"]) for kind, facts in machine.events} == {("batch_raised", "calm")}


def test_calm_must_last(machine: Machine) -> None:
    machine.available = 0
    machine.look()
    machine.available = 8 * GB
    assert machine.look(10) == LARGEST_BATCH // 2


def test_the_peak_is_remembered(machine: Machine) -> None:
    for machine.rss in (100, 300, 200):
        machine.look()
    assert machine.governor.peak_rss == 300
    assert machine.governor.rss == 200


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


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_limit_of_a_cgroup_counts_its_page_cache_as_available(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resumerge.host import memory

    names = memory._V2 if version == "v2" else memory._V1
    for name, text in zip(names, ("1000000", "700000")):
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "memory.stat").write_text(f"anon 300000\n{names[2]} 400000\nother 9\n")
    monkeypatch.setattr(memory, "cgroup_folders", lambda: [(tmp_path, names)])
    assert memory.measure_memory() == Memory(1_000_000, 700_000)


def test_a_cgroup_without_limit_limits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resumerge.host import memory

    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700000\n")
    monkeypatch.setattr(memory, "cgroup_folders", lambda: [(tmp_path, memory._V2)])
    assert memory.measure_memory().total > 100_000_000
