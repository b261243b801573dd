"""Promise: a merge on a cluster computes what is pending, journals what is there, and tidies up."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from driver_bench import Bench, Make

from resumerge.engine.cluster import computation
from resumerge.engine.cluster.computation import ClusterComputation
from resumerge.engine.shards.shard_files import TASKS
from resumerge.errors import Interrupted, Reason, Resumable

Over = Callable[[Bench], list[str]]


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Over:
    """Return a function that computes all pending shards, and returns the clusters' addresses."""

    def compute(bench: Bench) -> list[str]:
        addresses: list[str] = []

        @contextmanager
        def connected(address: str, waits: Callable[[], None]) -> Iterator[Bench]:
            addresses.append(address)
            waits()
            if address == "gone:1":
                raise Resumable(Reason.CLUSTER, "nobody is there")
            yield bench

        bench.exchange.close()
        monkeypatch.setattr(computation, "connected", connected)
        monkeypatch.setattr(computation, "SourceWatch", lambda *given: bench.watch)
        given: Any = {
            name: getattr(bench, name)
            for name in ("context", "plan", "ledger", "budget", "attempt", "files", "reader")
        }
        found = ClusterComputation(**given)
        found.run(bench.ledger.units.progress())
        return addresses

    return compute


@pytest.mark.parametrize(("ray", "address"), [(None, "local"), ("h:1", "h:1")])
def test_only_what_is_pending_is_computed(
    make: Make, over: Over, ray: str | None, address: str
) -> None:
    bench = make(ray=ray)
    assert bench.journal.commit(bench.plan.shards[1], bench.publishes(1), "t1")
    count = len(bench.plan.shards)
    bench.turns = [bench.ends(number) for number in range(count - 1)]
    assert over(bench) == [address]
    assert [task.shard for task, _, _ in bench.submitted] == [0, *range(2, count)]
    assert bench.watch.looked_at_all == 1 and not bench.ledger.shards.open()
    assert not (bench.shards.out / TASKS).exists()
    assert over(bench) == [], "nothing is pending"


def test_where_no_cluster_is_nothing_is_left(make: Make, over: Over) -> None:
    bench = make(ray="gone:1")
    with pytest.raises(Resumable, match="nobody is there"):
        over(bench)
    assert not bench.submitted and not (bench.shards.out / TASKS).exists()


def test_what_was_published_before_a_stop_counts(bench: Bench, over: Over) -> None:
    """A stop ends the tasks that have published nothing."""

    def publishes_and_stops() -> list[int]:
        bench.publishes(1)
        bench.stop.signum = signal.SIGTERM
        return []

    bench.turns = [bench.ends(0), publishes_and_stops]
    with pytest.raises(Interrupted):
        over(bench)
    assert [bench.is_sealed(number) for number in range(3)] == [True, True, False]
    assert not (bench.shards.out / TASKS).exists()
