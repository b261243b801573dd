"""Promise: units are computed in order as files and disk space allow; downloads serve the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import llama, plan, tensor

from resumerge.engine.execute import work_queue
from resumerge.engine.execute.work_queue import WorkQueue, download_order
from resumerge.errors import Reason, Resumable
from resumerge.ledger import Progress
from resumerge.planning import Plan
from resumerge.sources.types import Source, SourceFile

PENDING = Progress(
    committed_blocks=0, hashes=b"", input_hashes=b"", checksum=None, attempt=None, batch=None
)
DONE = replace(PENDING, checksum="known")
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"


def model(files: Mapping[str, int], *tensors: str, kind: str = "hub") -> Source:
    """Return a model of tensors of 100 elements, each in the file that its name begins with."""
    made = {name: replace(tensor(name, (100,)), file=name.partition(".")[0]) for name in tensors}
    known = {name: SourceFile(name, size, {}, False) for name, size in files.items()}
    return replace(llama("a", 0), kind=kind, tensors=made, files=known)


def copied(source: Source, *, shard_size: int = 1 << 30) -> Plan:
    """Return the plan of a copy, with units in the order of the tensors' names."""
    return plan(COPY, source, shard_size=shard_size)


def order(found: Plan, *, by_shard: bool = False) -> str:
    return "".join(name for _, name in download_order(found, found.units, by_shard=by_shard))


# Downloads


def test_the_files_that_complete_a_unit_with_the_fewest_bytes_come_first() -> None:
    names = ("a.w", "b.w", "c.w")
    assert order(copied(model({"a": 30, "b": 10, "c": 20}, *names))) == "bca"
    assert order(copied(model({"a": 10, "b": 10, "c": 10}, *names))) == "abc", "in their order"


def test_what_is_on_its_way_costs_nothing_more() -> None:
    recipe = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    mine = model({"c": 500, "a": 100, "b": 10}, "c.w", "a.w", "b.w")
    places = {"c.w": "y", "a.w": "z", "b.w": "z"}
    tensors = {name: replace(tensor(name, (100,)), file=file) for name, file in places.items()}
    sizes = {"y": 590, "z": 1000}
    files = {name: SourceFile(name, size, {}, False) for name, size in sizes.items()}
    other = replace(llama("b", 0), kind="hub", tensors=tensors, files=files)
    assert order(plan(recipe, mine, other)) == "bzacy"


def test_all_files_of_a_shard_come_before_those_of_later_ones() -> None:
    found = copied(model({"a": 30, "b": 10}, "a.w", "b.w"), shard_size=400)
    assert len(found.shards) == 2
    assert (order(found), order(found, by_shard=True)) == ("ba", "ab")


def test_local_files_are_not_downloaded() -> None:
    found = copied(model({"a": 30}, "a.w", kind="local"))
    assert order(found) == "" and found.remote_files_of(found.units[0]) == frozenset()


def test_only_files_that_a_pending_unit_reads_are_downloaded() -> None:
    found = copied(model({"a": 30, "b": 10}, "a.w", "b.w"))
    assert [name for _, name in download_order(found, found.units[1:])] == ["b"]


# The queue


class Bench:
    """A queue over files that arrive, and shards that have space, as a test says."""

    def __init__(self, found: Plan, *, done: tuple[int, ...] = ()) -> None:
        self.here: set[str] = set()
        self.full: set[int] = set()
        self.expected = False
        self.waited: list[float] = []
        """The seconds without progress at each check whether space will be freed."""
        self.waits = 0
        self.reports = 0
        self.stop = SimpleNamespace(requested=False)
        self.prefetcher = SimpleNamespace(
            ready_count=0, progress=None, ready_count_when_blocked=None,
            is_ready=lambda source, name: name in self.here, wait=self._wait,
        )  # fmt: skip
        space = SimpleNamespace(
            reserve=lambda shard: shard not in self.full,
            is_allocated=lambda shard: shard not in self.full,
            will_be_freed=lambda waited: self.waited.append(waited) or self.expected,
            no_space=lambda shard: Resumable(Reason.DISK_FULL, f"shard {shard}"),
        )
        progress = [DONE if unit.number in done else PENDING for unit in found.units]
        execution: Any = SimpleNamespace(plan=found, stop=self.stop, progress=progress)
        prefetcher: Any = self.prefetcher
        anything: Any = space
        self.queue = WorkQueue(execution, prefetcher, anything)
        self.next_waits: list[Any] = []

    def _wait(self, seconds: float) -> None:
        self.waits += 1
        if self.next_waits:
            self.next_waits.pop(0)()

    def arrive(self, names: str) -> None:
        self.here |= set(names)
        self.prefetcher.ready_count += len(names)

    def report(self) -> None:
        self.reports += 1

    def taken(self) -> list[int]:
        found = []
        while (unit := self.queue.take()) is not None:
            found.append(unit.number)
        return found


def test_units_come_in_order_once_their_files_are_here() -> None:
    bench = Bench(copied(model({"a": 1, "b": 1}, "a.1", "b.1", "a.2", "b.2")))
    assert bench.taken() == []
    bench.arrive("b")
    assert bench.taken() == [2, 3]
    bench.arrive("a")
    assert bench.taken() == [0, 1]
    assert not bench.queue.wait(bench.report) and bench.waits == 0


def test_the_files_of_all_models_are_needed() -> None:
    recipe = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    other = replace(model({"b": 1}, "b.w"), ref=llama("b", 0).ref)
    mine = model({"a": 1}, "a.w")
    mine = replace(mine, tensors={"w": replace(mine.tensors["a.w"], name="w")})
    other = replace(other, tensors={"w": replace(other.tensors["b.w"], name="w")})
    bench = Bench(plan(recipe, mine, other))
    bench.arrive("a")
    assert bench.taken() == []
    bench.arrive("b")
    assert bench.taken() == [0]


def test_what_arrives_in_between_goes_before_what_comes_later_in_the_plan() -> None:
    bench = Bench(copied(model({"a": 1, "b": 1}, "a.1", "a.2", "b.1", "b.2")))
    bench.arrive("b")
    first = bench.queue.take()
    assert first is not None and first.number == 2
    bench.arrive("a")
    assert bench.taken() == [0, 1, 3]


def test_committed_units_are_not_computed_again() -> None:
    bench = Bench(copied(model({"a": 1}, "a.1", "a.2", "a.3")), done=(0, 2))
    bench.arrive("a")
    assert bench.taken() == [1]


def test_a_full_disk_leaves_the_shards_that_have_their_space() -> None:
    bench = Bench(copied(model({"a": 1}, "a.1", "a.2", "a.3"), shard_size=400))
    bench.arrive("a")
    bench.full = {0, 2}
    assert bench.taken() == [1]
    bench.full = {2}
    assert bench.taken() == [0]


def test_waiting_ends_when_a_file_arrives() -> None:
    bench = Bench(copied(model({"a": 1, "b": 1}, "a.1", "b.1")))
    bench.next_waits = [lambda: None, lambda: bench.arrive("b")]
    assert bench.queue.wait(bench.report)
    assert (bench.waits, bench.reports) == (2, 2)
    assert bench.taken() == [1]


def test_waiting_ends_when_a_signal_asks() -> None:
    bench = Bench(copied(model({"a": 1}, "a.1")))
    bench.next_waits = [lambda: setattr(bench.stop, "requested", True)]
    assert not bench.queue.wait(bench.report)
    ready = Bench(copied(model({"a": 1}, "a.1")))
    ready.arrive("a")
    ready.stop.requested = True
    assert not ready.queue.wait(ready.report), "though there is one"


def test_without_space_that_will_come_the_run_ends() -> None:
    found = copied(model({"a": 1, "b": 1}, "a.1", "b.1"), shard_size=400)
    bench = Bench(found)
    bench.arrive("a")
    bench.full = {0, 1}
    with pytest.raises(Resumable, match="shard 0"):
        bench.queue.wait(bench.report)
    waiting = Bench(found)
    waiting.arrive("a")
    waiting.full = {0}
    waiting.next_waits = [lambda: waiting.arrive("b")]
    assert waiting.queue.wait(waiting.report), "a shard that has its space waits for its files"
    freed = Bench(found)
    freed.arrive("a")
    freed.full, freed.expected = {0, 1}, True
    freed.next_waits = [lambda: freed.full.clear()]
    assert freed.queue.wait(freed.report)


def test_downloads_are_told_when_they_alone_block() -> None:
    bench = Bench(copied(model({"a": 1}, "a.1")))
    seen: list[object] = []
    bench.next_waits = [
        lambda: seen.append(bench.prefetcher.ready_count_when_blocked),
        lambda: (seen.append(bench.prefetcher.ready_count_when_blocked), bench.arrive("a")),
    ]
    assert bench.queue.wait(bench.report)
    assert seen == [0, 0] and bench.prefetcher.ready_count_when_blocked is None


def test_downloads_that_wait_for_space_are_not_told_that_they_block() -> None:
    """The downloads would take the space that the next shard needs."""
    bench = Bench(copied(model({"a": 1, "b": 1}, "a.1", "b.1"), shard_size=400))
    bench.arrive("a")
    bench.full, bench.expected = {0}, True
    seen: list[object] = []
    bench.next_waits = [
        lambda: seen.append(bench.prefetcher.ready_count_when_blocked),
        lambda: (seen.append(bench.prefetcher.ready_count_when_blocked), bench.full.clear()),
    ]
    assert bench.queue.wait(bench.report)
    assert seen == [None, None]


def test_a_mirror_is_given_up_only_after_its_time_without_any_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A download that goes on is progress, too."""
    now = 100.0
    monkeypatch.setattr(work_queue, "time", SimpleNamespace(monotonic=lambda: now))
    bench = Bench(copied(model({"a": 1}, "a.1")))
    bench.arrive("a")
    bench.full, bench.expected = {0}, True

    def later(*, progress: object = None) -> None:
        nonlocal now
        now += 5.0
        bench.prefetcher.progress = progress

    bench.next_waits = [
        later,
        later,
        lambda: later(progress="one"),
        lambda: later(progress="one"),
        lambda: later(progress="two"),
        bench.full.clear,
    ]
    assert bench.queue.wait(bench.report)
    assert bench.waited == [0, 5, 10, 0, 5, 0]


def test_space_that_becomes_free_between_two_looks_is_used() -> None:
    bench = Bench(copied(model({"a": 1}, "a.1")))
    bench.arrive("a")
    looks = iter([False, True, True])
    bench.queue._space.reserve = lambda shard: next(looks)  # type: ignore[method-assign]
    bench.full = {0}
    assert bench.queue.wait(bench.report)


def test_the_first_shard_without_space_is_named() -> None:
    bench = Bench(copied(model({"a": 1}, "a.1", "a.2", "a.3"), shard_size=400), done=(0,))
    bench.arrive("a")
    bench.full = {0, 1, 2}
    with pytest.raises(Resumable, match="shard 1"):
        bench.queue.wait(bench.report)


def test_where_nothing_is_ready_files_are_waited_for_though_no_shard_has_space() -> None:
    bench = Bench(copied(model({"a": 1}, "a.1")))
    bench.full = {0}
    bench.next_waits = [lambda: (bench.arrive("a"), bench.full.clear())]
    assert bench.queue.wait(bench.report)
