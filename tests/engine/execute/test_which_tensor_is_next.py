"""Promise: tensors are computed in the plan's order as far as their files are there, and files are
downloaded so that the first ones can soon be computed.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import plan, remote, vectors

from resumerge.engine.execute.work_queue import WorkQueue, download_order
from resumerge.errors import Reason, Resumable
from resumerge.ledger import Progress
from resumerge.planning import Plan
from resumerge.sources.types import Source

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
PENDING = Progress(0, b"", b"", None, None, None)
DONE = Progress(1, bytes(16), b"", "0" * 32, 1, 1)


def names(found: Plan, **options: bool) -> list[tuple[str, str]]:
    return [
        (source.ref.name, name) for source, name in download_order(found, found.units, **options)
    ]


def test_the_fewest_bytes_that_complete_a_tensor_come_first() -> None:
    found = plan(RECIPE, remote("a", 5, 3, 4), remote("b", 5, 3, 4))
    assert names(found) == [
        ("a", "f1"), ("b", "f1"), ("a", "f2"), ("b", "f2"), ("a", "f0"), ("b", "f0")
    ]  # fmt: skip


def test_of_the_same_size_the_first_in_the_plan() -> None:
    found = plan(RECIPE, remote("a", 3, 3), remote("b", 3, 3))
    assert [name for _, name in names(found)] == ["f0", "f0", "f1", "f1"]


def with_sizes(source: Source, *sizes: int) -> Source:
    """The model, with files of so many bytes."""
    files = source.files.items()
    return replace(source, files={n: replace(f, size=k) for (n, f), k in zip(files, sizes)})


def test_a_file_that_is_on_its_way_already_costs_nothing() -> None:
    """Once `f0` of `a` comes for the first tensor, the second needs little more."""
    a, b = remote("a", 3, 3, 3), remote("b", 3, 3, 3)
    shared = {**a.tensors, "t1": replace(a.tensors["t1"], file="f0")}
    a = with_sizes(replace(a, tensors=shared), 1000, 0, 700)
    found = plan(RECIPE, a, with_sizes(b, 10, 500, 500))
    assert names(found) == [("a", "f0"), ("b", "f0"), ("b", "f1"), ("a", "f2"), ("b", "f2")]


def test_where_shards_are_freed_those_of_the_first_come_first() -> None:
    found = plan(RECIPE, remote("a", 9, 3), remote("b", 9, 3), shard_size=40)
    assert len(found.shards) == 2
    assert [name for _, name in names(found, by_shard=True)] == ["f0", "f0", "f1", "f1"]
    assert [name for _, name in names(found)] == ["f1", "f1", "f0", "f0"]


def test_only_files_that_a_pending_tensor_reads_are_downloaded() -> None:
    found = plan(RECIPE, remote("a", 3, 4), remote("b", 3, 4))
    assert [name for _, name in download_order(found, found.units[1:])] == ["f1", "f1"]
    local = plan(RECIPE, vectors("a", 3), vectors("b", 3))
    assert download_order(local, local.units) == []


class Arriving:
    """Files that arrive when the test says so."""

    def __init__(self) -> None:
        self.here: set[tuple[str, str]] = set()
        self.ready_count, self.progress, self.blocked_at = 0, None, None
        self.waits = 0

    def is_ready(self, source: Source, name: str) -> bool:
        return (source.ref.name, name) in self.here

    def arrive(self, *names: str) -> None:
        self.here |= {(model, name) for model in "ab" for name in names}
        self.ready_count += 2 * len(names)

    def wait(self, seconds: float) -> None:
        self.waits += 1
        self.arrive("f0")


class Space:
    """Which shards have space, and whether some will be freed."""

    def __init__(self, *full: int, freed: bool = False) -> None:
        self.full, self.freed = set(full), freed

    def reserve(self, shard: int) -> bool:
        return shard not in self.full

    def is_allocated(self, shard: int) -> bool:
        return shard not in self.full

    def will_be_freed(self, waited: float) -> bool:
        return self.freed

    def no_space(self, shard: int) -> Resumable:
        return Resumable(Reason.DISK_FULL, f"shard {shard}")


def queue(found: Plan, files: Any, space: Any, *done: int) -> WorkQueue:
    progress = [DONE if unit.index in done else PENDING for unit in found.units]
    stop = SimpleNamespace(requested=False)
    execution: Any = SimpleNamespace(plan=found, stop=stop, progress=progress)
    return WorkQueue(execution, files, space)


def taken(waiting: WorkQueue) -> list[str]:
    found = []
    while (unit := waiting.take()) is not None:
        found.append(unit.name)
    return found


@pytest.fixture
def four() -> Plan:
    """Four tensors in two shards."""
    found = plan(RECIPE, remote("a", 8, 8, 8, 8), remote("b", 8, 8, 8, 8), shard_size=64)
    assert [unit.shard for unit in found.units] == [0, 0, 1, 1]
    return found


def test_what_is_ready_is_taken_in_the_plan_s_order(four: Plan) -> None:
    files = Arriving()
    waiting = queue(four, files, Space())
    assert taken(waiting) == []
    files.arrive("f3", "f1")
    assert taken(waiting) == ["t1", "t3"]
    files.arrive("f2")
    files.arrive("f0")
    assert taken(waiting) == ["t0", "t2"]
    assert not waiting.wait(lambda: None)


def test_a_file_of_one_model_is_not_enough(four: Plan) -> None:
    files = Arriving()
    files.here, files.ready_count = {("a", "f0")}, 1
    waiting = queue(four, files, Space(), 1, 2, 3)
    assert taken(waiting) == []
    files.arrive("f0")
    assert taken(waiting) == ["t0"]


def test_what_is_committed_is_not_taken_again(four: Plan) -> None:
    files = Arriving()
    files.arrive("f0", "f1", "f2", "f3")
    assert taken(queue(four, files, Space(), 0, 2)) == ["t1", "t3"]


def test_a_shard_without_space_waits_and_another_goes_on(four: Plan) -> None:
    files, space = Arriving(), Space(0)
    files.arrive("f0", "f1", "f2", "f3")
    waiting = queue(four, files, space)
    assert taken(waiting) == ["t2", "t3"]
    with pytest.raises(Resumable, match="shard 0"):
        waiting.wait(lambda: None)
    space.full.clear()
    assert waiting.wait(lambda: None)
    assert taken(waiting) == ["t0", "t1"]


def test_a_file_is_waited_for_and_so_is_space_that_will_be_free(four: Plan) -> None:
    told: list[bool] = []
    files = Arriving()
    assert queue(four, files, Space(), 1, 2, 3).wait(lambda: told.append(True))
    assert files.waits == len(told) == 1
    space = Space(0, freed=True)
    waiting = queue(four, files, space, 1, 2, 3)

    def free() -> None:
        space.full.clear()

    assert waiting.wait(free)
    assert files.waits == 2
    assert files.blocked_at is None


def test_a_signal_ends_the_wait(four: Plan) -> None:
    files = Arriving()
    waiting = queue(four, files, Space())
    waiting._stop.requested = True
    assert not waiting.wait(lambda: None)
    assert files.waits == 0
