"""Promise: scans run ahead of the blocks, as far as memory, disk and network allow."""

from __future__ import annotations

import threading
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from scheduler_bench import Bench, Pool, linear, without_threads
from waiting import HANGS_SECONDS

from resumerge.engine.execute import unit_feed
from resumerge.engine.execute.unit_feed import UNITS_AHEAD

__all__ = ["without_threads"]

NOTHING = {
    "begin": lambda unit, first: None,
    "end": lambda unit: None,
    "expect_pass": lambda tensor, sample: nullcontext(),
}
"""The methods of a read-ahead that does nothing."""


def order(*units: int, more: int, **limits: Any) -> None:
    """Check the order of scans and blocks, where the scans of so many units run ahead."""
    names = [f"t{number}" for number in range(len(units))]
    Pool.order.clear()
    bench = Bench(linear(*units), scanned=tuple(names))
    for name, value in limits.items():
        setattr(bench.governor if name == "cache_is_scarce" else bench.feed, name, value)
    bench.run()
    begun = [("preparation", name) for name in names]
    expected = begun[: more + 1]
    for number, name in enumerate(names):
        expected += [("waiting for", "preparation"), ("block", name)]
        expected += begun[more + 1 + number :][:1]
    assert Pool.order == expected


def test_scans_of_the_next_units_begin_before_the_blocks_of_this_one() -> None:
    order(2, 2, 2, 2, 2, more=UNITS_AHEAD)


def test_a_scan_that_would_read_from_a_disk_or_a_server_again_is_not_begun_early() -> None:
    order(2, 2, 2, 2, more=1, cache_is_scarce=True)
    order(2, 2, 2, 2, more=1, _spills=True)
    order(2, 2, 2, 2, more=1, _read_ahead=SimpleNamespace(is_needed=True, **NOTHING))


@pytest.mark.parametrize("costly", [False, True])
def test_costly_scans_are_made_one_at_a_time(costly: bool) -> None:
    bench = Bench(linear(2, 2))
    bench.governor.cache_is_scarce = costly
    both, met = threading.Barrier(2), []

    def prepare(*words: object) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2 if costly else HANGS_SECONDS)
            met.append(True)

    bench.feed._evaluator.prepare = prepare  # type: ignore[assignment]
    units = bench.scheduler._execution.plan.units
    threads = [threading.Thread(target=bench.feed._prepare, args=[[unit]]) for unit in units]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == ([] if costly else [True, True])


def test_what_scans_hold_is_no_more_than_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of two units' scans always fit; those of a third one may not."""
    monkeypatch.setattr(unit_feed, "reduction_bytes", lambda unit: unit.blocks)
    order(2, 3, 3, 2, more=1, _reductions_limit=7)
    order(2, 2, 3, 2, more=UNITS_AHEAD, _reductions_limit=7)
