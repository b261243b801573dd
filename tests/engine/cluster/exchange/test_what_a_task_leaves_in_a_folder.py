"""Promise: a task publishes its shard once, with its record, and reports what ended it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from driver_bench import NODES, ComputedShards
from made_up_plans import LINEAR, plan, remote, vectors
from merging import shards_of

from resumerge.digests import HASH_BYTES
from resumerge.engine.cluster import task, task_reporter
from resumerge.engine.cluster.exchange.base import Beat, TaskAbandoned
from resumerge.engine.cluster.exchange.conflicts import compare_with_record
from resumerge.engine.cluster.exchange.folder import FolderEndpoint, read_beat
from resumerge.engine.cluster.outcomes import Failed, Finished, Node, WorkerRefused
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.cluster.task import ShardTask, run_on_worker, run_task
from resumerge.engine.cluster.task_reporter import TaskReporter
from resumerge.engine.recovery.published import published_record, record_path
from resumerge.engine.reporter import ProgressUpdate, Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import TASKS
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import InputError, Interrupted, Problem, Reason, Resumable
from resumerge.hub.cache import snapshot_folder
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import UnitCommit
from resumerge.options import Options
from resumerge.planning.plan import Plan
from resumerge.planning.versions import Versions
from resumerge.recipe import ModelRef
from resumerge.tensors import stored_in
from resumerge.tensors.target import BLOCK_ELEMENTS

NODE = NODES[0]

# What a task computes


def test_a_task_returns_what_it_computed_and_leaves_its_shard_alone(
    computed: ComputedShards,
) -> None:
    """The task's records have the numbers that the units have in the run."""
    shards = computed.shards
    assert shards_of(shards.out) == shards_of(shards.whole)
    assert {path.suffix for path in shards.attempt.iterdir()} == {".json"}
    for shard, finished in zip(shards.plan.shards, computed.finished):
        numbers = [unit.number for unit in finished.record.units]
        assert numbers == [*range(shard.first, shard.last)]
        assert finished.record.fits(shards.plan, shard, shards.fingerprint)
        assert finished.nbytes == shard.nbytes and finished.node == Node("", "here")
        assert finished.seconds > 0 and finished.peak_rss > 1 << 20
        assert all(unit.seconds >= 0 and unit.input_hashes for unit in finished.record.units)
        assert published_record(record_path(shards.attempt, shard.number)) == finished.record


def test_the_plan_of_a_shard_has_its_units_from_zero(computed: ComputedShards) -> None:
    for shard in computed.shards.plan.shards:
        found = shard_plan(computed.shards.plan, shard.number)
        units = computed.shards.plan.units[shard.first : shard.last]
        [own] = found.shards
        assert own == replace(shard, number=0, first=0, last=len(units))
        assert found.units == tuple(
            replace(unit, number=n, shard=0) for n, unit in enumerate(units)
        )
        assert not any((found.stages, found.notes, found.left_out, found.kept, found.variants))
        assert all(not (s.config or s.companions or s.tensors) for s in found.sources)


def test_a_plan_of_a_shard_has_the_remote_files_that_it_reads_with_their_headers() -> None:
    whole = plan(LINEAR, remote("a", 4, 5, 6), remote("b", 4, 5, 6), shard_size=30)
    assert len(whole.shards) == 3
    for shard in whole.shards:
        found = shard_plan(whole, shard.number)
        read = {(s.source, s.file) for unit in found.units for s in stored_in(unit.expression)}
        assert {n for n, _ in read} == {0, 1}
        for number, source in enumerate(found.sources):
            names = {file for n, file in read if n == number}
            assert source.files.keys() == names and len(names) == 1
            assert source.tensors.keys() == {name.replace("f", "t") for name in names}
            of_whole = whole.sources[number]
            assert all(file == of_whole.files[name] for name, file in source.files.items())


# Heartbeats


def endpoint(attempt: Path, name: str = "shard0-1") -> FolderEndpoint:
    (attempt / name).mkdir(parents=True, exist_ok=True)
    return FolderEndpoint(attempt, name, 0, attempt.parents[1])


def test_a_heartbeat_is_read_as_it_was_told_last(tmp_path: Path) -> None:
    own = endpoint(tmp_path / "a" / "b")
    assert read_beat(own.own_folder) is None
    for beat in (Beat(NODE), Beat(NODE, 3, 1 << 40, 5)):
        own.beat(beat)
        assert read_beat(own.own_folder) == beat
    assert [path.name for path in own.own_folder.iterdir()] == ["heartbeat.json"]
    shutil.rmtree(own.own_folder)
    with pytest.raises(TaskAbandoned):
        own.beat(Beat(NODE))


WHOLE = '{"node": {"id": "n", "host": "h"}, "count": 1, "budget": 2, "nbytes": 3}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"n"', "1"),
        ('"h"', "null"),
        ('"host": "h"', '"host": "h", "more": 1'),
        (', "host": "h"', ""),
        ('"count": 1', '"count": true'),
        ('"budget": 2', '"budget": 2.0'),
        ('"nbytes": 3', '"nbytes": "3"'),
        (', "nbytes": 3', ""),
        ("}", ""),
        (WHOLE, "[1]"),
        (WHOLE, "7"),
    ],
)
def test_a_heartbeat_has_its_texts_and_numbers_or_is_none(before: str, after: str) -> None:
    assert Beat.of_bytes(WHOLE.encode()) == Beat(Node("n", "h"), 1, 2, 3)
    assert before in WHOLE and Beat.of_bytes(WHOLE.replace(before, after).encode()) is None


class Hears:
    """An endpoint that keeps the heartbeats."""

    beat_seconds = 5.0

    def __init__(self) -> None:
        self.beats: list[Beat] = []

    def beat(self, beat: Beat) -> None:
        self.beats.append(beat)


class Inner(Reporter):
    def __init__(self) -> None:
        self.told: list[str] = []

    def heartbeat(self) -> None:
        self.told.append("heartbeat")

    def waiting(self, text: str) -> None:
        self.told.append(text)


def test_a_task_is_heard_of_now_and_then_whatever_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now, hears, inner = [100.0], Hears(), Inner()
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(task_reporter, "time", clock)
    reporter = TaskReporter(hears, NODE, inner)  # type: ignore[arg-type]
    assert hears.beats == [Beat(NODE, 1)] and inner.told == ["heartbeat"]
    reporter.began(1, 77)
    reporter.progressed(ProgressUpdate(9, 10, 0, 1, ""))
    assert len(hears.beats) == 1 and len(inner.told) == 2, "too soon"
    now[0] += Hears.beat_seconds
    reporter.heartbeat()
    assert hears.beats[1:] == [Beat(NODE, 2, 77, 9)] == [reporter.last]
    nothing: Any = None
    for number, says in enumerate(
        (
            lambda: reporter.doing("x"),
            lambda: reporter.reading(1, 2),
            lambda: reporter.fetching(nothing),
            lambda: reporter.waiting("for memory"),
            lambda: reporter.progressed(ProgressUpdate(10, 10, 0, 1, "")),
        )
    ):
        now[0] += Hears.beat_seconds
        says()
        assert hears.beats[-1].count == 3 + number
    assert hears.beats[-1].nbytes == 10 and inner.told.count("for memory") == 1
    assert len(inner.told) == 9


# How a task ends


@pytest.fixture
def order(computed: ComputedShards, tmp_path: Path) -> ShardTask:
    """Make a task for the second shard, with an empty folder."""
    attempt = tmp_path / "out" / TASKS / ("0" * 16)
    attempt.mkdir(parents=True)
    of_shard = shard_plan(computed.shards.plan, 1)
    return ShardTask(
        "shard1-1",
        1,
        computed.shards.plan.shards[1].first,
        FolderEndpoint(attempt, "shard1-1", 1, tmp_path / "out"),
        computed.shards.fingerprint,
        Versions.of_plan(of_shard),
        task.pickle.dumps(of_shard),
        Options(threads=1),
    )


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (TaskAbandoned(), "abandoned", "the driver has given this task up"),
        (Resumable(Reason.NETWORK, "no answer"), "network", "no answer"),
        (InputError([Problem("it is odd")]), "refused", "it is odd"),
        (OSError(28, "No space left on device"), "disk_full", "The disk is full"),
        (MemoryError("too much"), "oom", "out of memory: too much"),
        (ZeroDivisionError("by zero"), "error", "ZeroDivisionError: by zero"),
    ],
)
def test_what_ends_a_task_is_its_outcome(
    order: ShardTask,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
    message: str,
) -> None:
    """A task that ends with an error leaves no folder."""

    def fails(*given: object) -> None:
        assert isinstance(order.endpoint, FolderEndpoint) and order.endpoint.own_folder.is_dir()
        raise error

    monkeypatch.setattr(task, "_compute", fails)
    outcome = run_task(order, NODE, StopRequest())
    assert isinstance(outcome, Failed) and outcome.node == NODE
    assert outcome.reason == reason and message in outcome.message
    assert isinstance(order.endpoint, FolderEndpoint)
    assert not list(order.endpoint.folder.iterdir()) and not order.endpoint.own_folder.exists()


def test_a_model_of_the_hub_is_looked_for_in_the_cache_of_this_machine(
    order: ShardTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = task.pickle.loads(order.plan)
    sources = [
        replace(s, ref=ModelRef(f"org/{n}", f"org/{n}"), kind="hub", revision="c" * 40)
        for n, s in enumerate(plan.sources)
    ]
    there = [replace(source, folder=tmp_path / "of the driver") for source in sources]
    order = replace(order, plan=task.pickle.dumps(replace(plan, sources=tuple(there))))
    opened: list[Path] = []

    def stops(context: object, task: object, plan: Plan, *given: object) -> None:
        opened.extend(source.folder for source in plan.sources)
        raise TaskAbandoned

    monkeypatch.setattr(task, "_compute", stops)
    assert isinstance(run_task(order, NODE, StopRequest()), Failed)
    assert opened == [snapshot_folder(source.ref.name, "c" * 40) for source in sources]


@pytest.mark.parametrize("error", [Interrupted(15), KeyboardInterrupt()])
def test_a_signal_is_no_outcome_of_a_task(
    order: ShardTask, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stops(*given: object) -> None:
        raise error

    monkeypatch.setattr(task, "_compute", stops)
    with pytest.raises(type(error)):
        run_task(order, NODE, StopRequest())
    assert isinstance(order.endpoint, FolderEndpoint)
    assert not order.endpoint.own_folder.exists()


def on_worker(order: ShardTask, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the outcome of a task on a worker, whose node Ray names."""
    here = SimpleNamespace(get_node_id=lambda: "node-id")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: here))
    return run_on_worker(order)


def test_a_worker_with_other_versions_or_without_the_folder_takes_no_task(
    order: ShardTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of another version is not read, because its format may differ."""
    known = {**order.versions.known, "numerics": 0}
    other = replace(order, versions=Versions(known), plan=b"nothing that can be read")
    refused = on_worker(other, monkeypatch)
    assert isinstance(refused, WorkerRefused) and refused.node.id == "node-id"
    assert len(refused.differences) == 1 and "numerics: 0 at the driver" in refused.differences[0]
    assert isinstance(order.endpoint, FolderEndpoint)
    order.endpoint.folder.rmdir()
    refused = on_worker(order, monkeypatch)
    assert isinstance(refused, WorkerRefused)
    assert refused.differences == (
        f"the output's folder: {order.endpoint.folder} does not exist here",
    )


def test_a_worker_computes_for_the_node_that_ray_names(
    order: ShardTask, computed: ComputedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = on_worker(order, monkeypatch)
    assert isinstance(outcome, Finished) and outcome.node.id == "node-id"
    found, known = outcome.record.units, computed.finished[1].record.units
    assert [(u.number, u.hashes, u.input_hashes, u.checksum) for u in found] == [
        (u.number, u.hashes, u.input_hashes, u.checksum) for u in known
    ]
    assert [u.measurements for u in found] == [u.measurements for u in known]
    assert any(u.measurements for u in found)


# Publishing


@pytest.fixture
def publish(order: ShardTask, computed: ComputedShards) -> Callable[[], None]:
    """Return a function that publishes the second shard, which the task has computed."""
    own, shard = order.endpoint, computed.shards.plan.shards[1]
    assert isinstance(own, FolderEndpoint)

    def publishes() -> None:
        own.own_folder.mkdir(exist_ok=True)
        shutil.copyfile(computed.shards.out / shard.name, own.own_folder / shard.name)
        record = computed.finished[1].record
        of_shard = shard_plan(computed.shards.plan, 1)
        assert own.publish(of_shard, record, Beat(NODE), lambda nbytes: None) == record

    return publishes


def test_a_shard_that_is_there_is_compared_and_stays(
    order: ShardTask, computed: ComputedShards, publish: Callable[[], None]
) -> None:
    own, shard = order.endpoint, computed.shards.plan.shards[1]
    assert isinstance(own, FolderEndpoint)
    path = own.out / shard.name
    publish()
    first = path.stat()
    assert published_record(record_path(own.folder, 1)) == computed.finished[1].record
    record_path(own.folder, 1).unlink()
    publish()
    assert os.path.samestat(path.stat(), first) and not record_path(own.folder, 1).exists()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Resumable) as conflict:
        publish()
    known = computed.finished[1].record.units[-1].hashes[-HASH_BYTES:].hex()
    assert conflict.value.reason == "hash_conflict" and path.read_bytes() == data
    last = computed.shards.plan.units[shard.last - 1].name
    assert f"different bytes of {last} in {shard.name}: block 0 had the hash" in str(conflict.value)
    assert f"and {known} on {NODE}" in conflict.value.message


def test_the_block_that_differs_is_named_with_both_hashes(tmp_path: Path) -> None:
    whole = plan(
        "merge_method: passthrough\nmodels: [{model: a}]\n", vectors("a", BLOCK_ELEMENTS + 5)
    )
    [unit], path = whole.units, tmp_path / "shard"
    path.write_bytes(bytes(unit.block_span(1)[0] + 20))
    blocks = [hash_block(bytes(unit.block_span(number)[1])) for number in range(2)]
    record = ShardRecord(
        "",
        (
            UnitCommit(
                number=0, hashes=b"".join(blocks), input_hashes=b"", checksum="", seconds=0.0
            ),
        ),
    )
    compare_with_record(path, "s", whole, record, NODE)
    other = ShardRecord("", (replace(record.units[0], hashes=blocks[0] + bytes(HASH_BYTES)),))
    with pytest.raises(Resumable) as conflict:
        compare_with_record(path, "s", whole, other, NODE)
    assert conflict.value.reason == "hash_conflict"
    told = f"of t0 in s: block 1 had the hash {blocks[1].hex()} first, and {'0' * 32} on {NODE}"
    assert told in conflict.value.message


def test_a_file_of_somebody_else_is_set_aside_also_a_link(
    order: ShardTask, computed: ComputedShards, publish: Callable[[], None]
) -> None:
    own, name = order.endpoint, computed.shards.plan.shards[1].name
    assert isinstance(own, FolderEndpoint)
    (own.out / name).symlink_to("nowhere")
    publish()
    assert (own.out / f"{name}.kept").is_symlink() and not (own.out / name).is_symlink()
