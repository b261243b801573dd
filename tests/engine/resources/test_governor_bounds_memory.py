"""Promise: pressure halves the uncommitted limit, calm raises it, and events give the reasons."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import pytest

from resumerge.engine.resources import governor
from resumerge.engine.resources.governor import (
    LARGEST_UNCOMMITTED_LIMIT,
    SMALLEST_UNCOMMITTED_LIMIT,
    Governor,
)
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Resumable
from resumerge.host.memory import Memory, MemoryGauge
from resumerge.planning.estimates.memory import MemoryNeed
from resumerge.tensors.target import BLOCK_RUN_BYTES

GB = 10**9
MB = 10**6
BUDGET = 2 * GB
NEED = MemoryNeed(process=GB, shared=0, least=50 * MB, blocks=100 * MB, traffic=5 * GB)


class Machine:
    """A machine whose memory the test sets."""

    def __init__(self, memory_wait: float = 600.0) -> None:
        self.available = 8 * GB
        self.total = 16 * GB
        self.stalled = 0.0
        self.rss = GB
        self.time = 1000.0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.waits: list[str] = []
        self.governor = Governor(
            BUDGET,
            NEED,
            record_event=lambda kind, **facts: self.events.append((kind, facts)),
            waiting=self.waits.append,
            memory_wait=memory_wait,
            measure=self.measure,
            rss=lambda: self.rss,
            clock=lambda: self.time,
        )

    def measure(self) -> Memory:
        return Memory(
            total=self.total,
            available=self.available,
            bound="the cgroup job",
            stalled=self.stalled,
        )

    def adjust(self, times: int = 1) -> int:
        """Measure so many times, eight times in a second, and return the uncommitted limit."""
        for _ in range(times):
            self.governor.adjust()
            self.time += 0.125
        return self.governor.uncommitted_limit

    def limits(self) -> list[int]:
        """Return each uncommitted limit that was set."""
        return [facts["after"] for _, facts in self.events if "after" in facts]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.adjust()
    return machine


def test_with_memory_to_spare_nothing_changes(machine: Machine) -> None:
    assert machine.adjust(5) == LARGEST_UNCOMMITTED_LIMIT
    assert machine.events == []


def test_another_process_taking_memory_halves_the_limit_and_is_named(machine: Machine) -> None:
    machine.available = GB // 2
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT // 2
    [(kind, facts)] = machine.events
    assert kind == "batch_lowered"
    reason = "other processes took 7.5 GB; the cgroup job has 500 MB of 16 GB available"
    assert facts == {
        "reason": reason,
        "before": LARGEST_UNCOMMITTED_LIMIT,
        "after": LARGEST_UNCOMMITTED_LIMIT // 2,
        "rss": GB,
        "available": GB // 2,
    }


def test_the_limit_falls_while_there_is_still_room_for_a_smaller_one(machine: Machine) -> None:
    """The limit has to fit beside the margin and the growth that is expected of the process."""
    margin, growth = governor.margin(machine.total), NEED.peak_rss - machine.rss
    machine.available = margin + growth + LARGEST_UNCOMMITTED_LIMIT - 1
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT // 2
    assert machine.adjust(5) == LARGEST_UNCOMMITTED_LIMIT // 2


def test_this_process_above_its_budget_halves_the_limit(machine: Machine) -> None:
    machine.rss = int(BUDGET * 1.01)
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT // 2
    assert machine.events[0][1]["reason"] == "this process uses 2.02 GB, its budget is 2 GB"


def test_time_lost_in_waiting_for_memory_halves_the_limit(machine: Machine) -> None:
    machine.stalled = 0.4
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT // 2
    assert (
        machine.events[0][1]["reason"]
        == "all processes were stalled 40% of the time, waiting for memory"
    )


def test_the_limit_is_a_small_share_of_a_small_memory(machine: Machine) -> None:
    machine.total, machine.available = 400 * MB, 380 * MB
    machine.rss = NEED.peak_rss
    assert machine.adjust(50) <= machine.total // 8


def test_lasting_pressure_stops_at_the_smallest_limit(machine: Machine) -> None:
    machine.available = 0
    assert machine.adjust(50) == SMALLEST_UNCOMMITTED_LIMIT
    assert len(machine.events) == 5  # 128 MiB halved to 4 MiB, then silence


STEP = LARGEST_UNCOMMITTED_LIMIT // 8


def test_three_calm_seconds_raise_the_limit_by_one_step(machine: Machine) -> None:
    machine.available = 0
    assert machine.adjust(50) == SMALLEST_UNCOMMITTED_LIMIT
    machine.events.clear()
    machine.available = 8 * GB
    machine.adjust(23)
    assert machine.limits() == []
    machine.adjust(24 * 8)
    raised = [SMALLEST_UNCOMMITTED_LIMIT + number * STEP for number in range(1, 8)]
    assert machine.limits() == [*raised, LARGEST_UNCOMMITTED_LIMIT], (
        "the last step is a smaller one"
    )
    assert set(machine.kinds()) == {"batch_raised"}
    reasons = [facts["reason"] for _, facts in machine.events]
    assert reasons[0] == "other processes freed 8 GB"


def test_each_step_takes_three_calm_seconds(machine: Machine) -> None:
    machine.available = 0
    machine.adjust(50)
    machine.events.clear()
    machine.available = 8 * GB
    for steps in range(1, 8):
        machine.adjust(24)
        assert len(machine.events) == steps


def test_pressure_in_between_begins_the_calm_anew(machine: Machine) -> None:
    machine.available = 0
    machine.adjust()
    for _ in range(4):
        machine.available = 8 * GB
        machine.adjust(20)
        machine.stalled = 0.3
        machine.adjust()
        machine.stalled = 0.0
    assert "batch_raised" not in machine.kinds()


def test_the_limit_is_not_raised_where_the_larger_one_does_not_fit(machine: Machine) -> None:
    machine.available = 0
    machine.adjust(3)
    assert machine.governor.uncommitted_limit == STEP
    machine.available = governor.margin(machine.total) + NEED.peak_rss - machine.rss + 2 * STEP - 1
    assert machine.adjust(100) == STEP
    machine.available += 1
    assert machine.adjust(100) == 2 * STEP


def test_memory_that_was_away_for_a_moment_was_given_back(machine: Machine) -> None:
    machine.adjust(2)
    machine.available = 0
    machine.adjust()
    machine.available = 8 * GB
    machine.adjust(24)
    assert machine.events[-1][1]["reason"] == "other processes freed 8 GB"


def test_where_nobody_gave_memory_back_calm_is_the_reason(machine: Machine) -> None:
    machine.stalled = 0.5
    machine.adjust()
    machine.stalled = 0.0
    machine.adjust(40)
    assert machine.events[-1][1]["reason"] == "no memory pressure for 3 s"


def test_what_others_took_more_than_a_minute_ago_is_forgotten(machine: Machine) -> None:
    def reason() -> str:
        machine.available = GB // 4
        machine.adjust()
        machine.available = 2 * GB
        return str(machine.events[-1][1]["reason"])

    machine.available = 2 * GB
    machine.adjust(8 * 58)
    assert reason().startswith("other processes took 7.75 GB")
    machine.adjust(8 * 3)
    assert reason().startswith("other processes took 1.75 GB")


@pytest.mark.parametrize(("more", "named"), [(0, False), (1, True)])
def test_what_this_process_takes_itself_is_not_anothers(
    machine: Machine, more: int, named: bool
) -> None:
    """The process takes its own memory, and the unwritten pages of its uncommitted output."""
    machine.governor.budget = 20 * GB
    machine.available = 0
    machine.rss = 9 * GB - LARGEST_UNCOMMITTED_LIMIT - governor.margin(machine.total) - more
    machine.adjust()
    assert ("other processes took" in machine.events[0][1]["reason"]) is named


def test_thresholds_are_what_they_say(machine: Machine) -> None:
    machine.stalled = 0.2
    machine.rss = BUDGET
    fits = governor.margin(machine.total) + LARGEST_UNCOMMITTED_LIMIT
    machine.available = fits
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT
    machine.available = fits - 1
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT // 2
    assert (SMALLEST_UNCOMMITTED_LIMIT, LARGEST_UNCOMMITTED_LIMIT) == (4 << 20, 128 << 20)
    assert governor.margin(10 * GB) == GB // 2
    assert governor.margin(100 * GB) == 1 << 30


@pytest.mark.parametrize(("threads", "times"), [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)])
def test_many_threads_have_a_larger_limit(threads: int, times: int) -> None:
    """A quarter of the limit is in flight: two block runs of 4 MiB for each thread."""
    calm = Memory(total=100 * GB, available=90 * GB)
    found = Governor(
        2 * GB,
        NEED,
        record_event=lambda *told, **facts: None,
        measure=lambda: calm,
        threads=threads,
    )
    with found:
        assert found.uncommitted_limit == times * LARGEST_UNCOMMITTED_LIMIT
    assert found.uncommitted_limit // 4 >= 2 * threads * BLOCK_RUN_BYTES


def test_the_limit_is_never_more_than_an_eighth_of_the_memory(machine: Machine) -> None:
    machine.total = 8 * LARGEST_UNCOMMITTED_LIMIT
    machine.available = 8 * GB
    machine.rss = NEED.peak_rss
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT
    machine.total -= 8
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT // 2


def test_a_process_that_has_grown_needs_no_more_for_it(machine: Machine) -> None:
    """A process that has grown beyond its need does not leave more room for the limit."""
    machine.available = governor.margin(machine.total) + LARGEST_UNCOMMITTED_LIMIT
    machine.rss = NEED.peak_rss + 100 * MB
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT
    machine.available -= 1
    assert machine.adjust() == LARGEST_UNCOMMITTED_LIMIT // 2


def test_the_page_cache_leaves_room_for_the_limit_and_for_what_the_process_grows_by(
    machine: Machine,
) -> None:
    machine.available = 3 * GB
    machine.adjust()
    growth = NEED.peak_rss - machine.rss
    expected = 3 * GB - governor.margin(machine.total) - growth - LARGEST_UNCOMMITTED_LIMIT
    assert machine.governor.cache_room == expected
    machine.rss = 2 * NEED.peak_rss
    machine.adjust()
    limit = machine.governor.uncommitted_limit
    assert machine.governor.cache_room == 3 * GB - governor.margin(machine.total) - limit
    machine.available = GB // 2
    machine.adjust()
    assert machine.governor.cache_room == 0


def test_the_page_cache_is_scarce_for_a_minute_after_pressure(machine: Machine) -> None:
    machine.stalled = 0.5
    machine.adjust()
    machine.stalled = 0.0
    assert machine.governor.cache_is_scarce
    machine.time += 59.75
    assert machine.governor.cache_is_scarce
    machine.time += 0.125
    assert not machine.governor.cache_is_scarce


def test_one_block_has_to_fit_beside_half_of_the_margin(machine: Machine) -> None:
    margin = governor.margin(machine.total) // 2
    growth = NEED.least_rss - machine.rss
    machine.available = margin + growth
    machine.adjust()
    assert not machine.governor.is_cramped
    machine.available -= 1
    machine.adjust()
    assert machine.governor.is_cramped
    machine.rss = NEED.least_rss + GB
    machine.available = margin
    machine.adjust()
    assert not machine.governor.is_cramped, "it has grown already"


def test_the_peak_is_remembered(machine: Machine) -> None:
    for machine.rss in (2 * MB, 3 * GB, 4 * MB):
        machine.adjust()
    assert machine.governor.peak_rss == 3 * GB
    assert machine.governor.rss == 4 * MB
    machine.available = 0
    machine.adjust()
    assert machine.events[-1][1]["rss"] == 4 * MB, "what it has now is told"


def test_it_begins_with_a_limit_that_fits(machine: Machine) -> None:
    machine.available = governor.margin(machine.total) + 130 * MB
    with machine.governor:
        assert machine.governor.uncommitted_limit == LARGEST_UNCOMMITTED_LIMIT // 8
    [(kind, facts)] = machine.events
    assert (kind, facts["before"], facts["after"]) == (
        "batch_lowered", LARGEST_UNCOMMITTED_LIMIT, LARGEST_UNCOMMITTED_LIMIT // 8
    )  # fmt: skip
    assert "other processes took" in facts["reason"]


def test_it_begins_with_the_smallest_limit_where_none_fits(machine: Machine) -> None:
    machine.available = 0
    with machine.governor:
        assert machine.governor.uncommitted_limit == SMALLEST_UNCOMMITTED_LIMIT


def test_it_ends_with_the_merge(machine: Machine) -> None:
    with machine.governor:
        pass
    assert not machine.governor._thread.is_alive(), "it writes to a ledger that is closed then"


def test_it_watches_by_itself_while_it_is_entered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor, "SAMPLE_SECONDS", 0.001)
    with machine.governor:
        machine.available = 0
        while machine.governor.uncommitted_limit > SMALLEST_UNCOMMITTED_LIMIT:
            time.sleep(0.001)


def test_without_room_for_a_block_the_run_waits_says_so_and_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[None] = []
    monkeypatch.setattr(governor, "give_back_freed_memory", lambda: given_back.append(None))
    monkeypatch.setattr(governor, "SAMPLE_SECONDS", 0.001)
    machine.available = 200 * MB
    machine.adjust()
    waiting = machine.waits.append

    def said(text: str) -> None:
        waiting(text)
        if len(machine.waits) <= 3:  # the governor may measure late, and no patience ends then
            machine.time += 2.0
        if len(machine.waits) == 3:
            machine.available = 8 * GB

    machine.governor._waiting = said
    with machine.governor:
        machine.governor.wait_for_memory(StopRequest())
    assert [kind for kind in machine.kinds() if "batch" not in kind] == ["waiting", "went_on"]
    [waits] = [facts for kind, facts in machine.events if kind == "waiting"]
    assert waits["reason"].startswith("other processes took 7.8 GB; the cgroup job has")
    assert (waits["rss"], waits["available"]) == (GB, 200 * MB)
    [waited] = [facts["seconds"] for kind, facts in machine.events if kind == "went_on"]
    assert waited >= 6.0
    first, *still = machine.waits
    assert first.startswith("Waiting for memory: other processes took 7.8 GB; the cgroup job has")
    assert first.endswith("450 MB is needed to continue")
    assert still, "it is said for as long as it is true"
    assert given_back == [None]


def test_with_room_for_a_block_nobody_waits(machine: Machine) -> None:
    machine.governor.wait_for_memory(StopRequest())
    assert (machine.events, machine.waits) == ([], [])


def test_waiting_ends_after_a_bounded_time_with_advice() -> None:
    machine = Machine(memory_wait=0.2)
    machine.available = 100 * MB
    machine.governor._waiting = lambda text: vars(machine).update(time=machine.time + 0.15)
    with machine.governor, pytest.raises(Resumable, match="Close other programs") as stopped:
        machine.governor.wait_for_memory(StopRequest())
    assert (stopped.value.exit_code, stopped.value.reason) == (75, "memory")
    kind, facts = machine.events[-1]
    assert kind == "gave_up_waiting"
    assert facts["seconds"] == 0.3


def test_telling_that_it_still_waits_does_not_prolong_the_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(memory_wait=0.3)
    machine.available = 0
    machine.adjust()
    stop = StopRequest()
    monkeypatch.setattr(machine.governor._measured, "wait", lambda seconds: passes(machine, stop))
    with pytest.raises(Resumable):
        machine.governor.wait_for_memory(stop)
    assert len(machine.waits) == 3


def passes(machine: Machine, stop: StopRequest) -> None:
    """Advance the clock by an eighth of a second, and stop a wait that lasts for a minute."""
    machine.time += 0.125
    if machine.time > 1060:
        stop.signum = 15


def test_the_memory_that_others_had_for_a_moment_counts_within_a_second(machine: Machine) -> None:
    """A single measurement in a second would miss the memory that was available in between."""
    machine.time += 1.0
    machine.available = 4 * GB
    machine.adjust()
    machine.available = 14 * GB
    machine.adjust()
    machine.available = GB // 4
    machine.adjust()
    assert machine.events[-1][1]["reason"].startswith("other processes took 13.8 GB")


def test_a_signal_ends_the_waiting_and_no_memory_is_said_to_be_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor, "SAMPLE_SECONDS", 0.001)
    machine.available = 200 * MB
    machine.adjust()
    machine.events.clear()
    stop = StopRequest()

    def signalled(text: str) -> None:
        machine.time += 2.0
        stop.signum = 15

    machine.governor._waiting = signalled
    machine.governor.wait_for_memory(stop)
    [_, (kind, facts)] = machine.events
    assert (kind, facts["seconds"]) == ("went_on", 2.0)
    shortage = "other processes took 7.8 GB; the cgroup job has 200 MB of 16 GB available"
    assert facts["reason"] == f"{shortage}; a signal ended the wait"


def test_page_cache_is_left_alone_where_there_is_plenty(machine: Machine) -> None:
    assert not machine.governor.cache_is_scarce
    machine.total = machine.available = 2 * NEED.traffic
    machine.adjust()
    assert not machine.governor.cache_is_scarce
    machine.total -= 2
    machine.adjust()
    assert machine.governor.cache_is_scarce


def test_watching_costs_less_than_one_percent_of_a_core() -> None:
    gauge = MemoryGauge()
    watching = Governor(
        BUDGET, NEED, record_event=lambda kind, **facts: None, measure=gauge.measure
    )
    seconds = []
    for _ in range(200):
        started = time.process_time()
        watching.adjust()
        seconds.append(time.process_time() - started)
    assert median(seconds) / governor.SAMPLE_SECONDS < 0.01


def test_a_shortage_is_explained_while_memory_is_measured(machine: Machine) -> None:
    """The main thread explains a wait for memory, and the governor's thread measures meanwhile."""

    class Measuring:
        at = most = 0

        @property
        def least(self) -> int:
            machine.time += 1
            machine.governor.adjust()
            return 0

    machine.adjust()
    machine.governor._others.append(Measuring())  # type: ignore[arg-type]
    assert "other processes took" in machine.governor._shortage()
