"""Promise: a shard whose task fails is computed elsewhere, and at last by the driver."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from driver_bench import LIMIT, MACHINES, NODES, Bench, ComputedShards, Make

from resumerge.engine.cluster import driver
from resumerge.engine.cluster.driver import HEAD_SECONDS, JOIN_SECONDS, LOST_SECONDS, START_SECONDS
from resumerge.engine.cluster.exchange import folder
from resumerge.engine.cluster.exchange.base import Beat
from resumerge.engine.cluster.machines import Machine, TaskRequest
from resumerge.engine.cluster.outcomes import Failed, Finished, Node, WorkerRefused
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.cluster.task import ShardTask
from resumerge.errors import Interrupted, Reason, Resumable
from resumerge.planning.versions import Versions

A, B, C = NODES


def stopped(bench: Bench, *numbers: int) -> Resumable:
    with pytest.raises(Resumable) as found:
        bench.over(*numbers)
    return found.value


def test_each_pending_shard_is_a_task_with_what_it_needs(make: Make) -> None:
    bench = make(ray="auto", mirror_then_delete=True, ray_resources='{"num_gpus": 1}')
    bench.alive = [Machine(A.id, {"CPU": 4.0, "memory": 8e9, "GPU": 1.0})]
    bench.turns = [bench.ends(1), bench.ends(0)]
    bench.over(1, 2)
    assert bench.ids() == ["shard1-1", "shard2-1"]
    for number, (task, request, avoid) in zip((1, 2), bench.submitted):
        shard = bench.plan.shards[number]
        assert (task.shard, task.first) == (number, shard.first)
        assert task.fingerprint == bench.ledger.run()["fingerprint"]
        plan = shard_plan(bench.plan, number)
        assert task.plan == pickle.dumps(plan) and task.versions == Versions.of_plan(plan)
        options = task.options
        assert (options.ray, options.mirror, options.mirror_then_delete) == (None, None, None)
        assert (options.threads, options.memory) == (1, 3_000_000_000)
        assert request == TaskRequest(1, None, {"num_gpus": 1}) and avoid == set()
        assert bench.endpoint_of(number - 1).out == bench.shards.out
    assert [bench.is_sealed(number) for number in range(3)] == [False, True, True]
    assert sorted(bench.announced) == [1, 2]


def test_a_task_with_a_bucket_between_has_its_mirror(make: Make) -> None:
    bench = make(mirror="s3://box/m")
    bench.context.frees_shards = True
    bench.turns = [bench.ends(0)]
    bench.over(0)
    assert bench.submitted[0][0].options.mirror == "s3://box/m"


@pytest.mark.parametrize(
    ("options", "machines", "request_"),
    [
        ({"threads": 3, "memory": 5}, [1.0], TaskRequest(3, 5, {})),
        ({"threads": None}, [8.0, 2.0, 4.0], TaskRequest(2, None, {})),
        ({"threads": None, "memory": 10}, [8.0, 4.0], TaskRequest(4, 10, {})),
        ({"threads": None}, [0.0, 6.0], TaskRequest(6, None, {})),
        ({"threads": None}, [0.0], TaskRequest(1, None, {})),
    ],
)
def test_a_task_takes_the_smallest_machine_that_can_take_it_whole(
    make: Make, options: dict[str, Any], machines: list[float], request_: TaskRequest
) -> None:
    bench = make(**options)
    bench.alive = [Machine(str(cpus), {"CPU": cpus, "memory": 100.0}) for cpus in machines]
    bench.turns = [bench.ends(0)]
    bench.over(0)
    [(task, request, _)] = bench.submitted
    assert request == request_ and task.options.threads == request_.threads


def test_a_machine_without_room_for_a_task_does_not_say_how_large_it_is(make: Make) -> None:
    bench = make(threads=None, memory=50)
    bench.alive = [
        Machine("small", {"CPU": 2.0, "memory": 49.0}),
        Machine("large", {"CPU": 4.0, "memory": 50.0}),
    ]
    bench.turns = [bench.ends(0)]
    bench.over(0)
    assert bench.submitted[0][1].threads == 4


def test_what_fails_goes_where_it_has_not_failed_and_then_with_half_of_the_memory(
    bench: Bench,
) -> None:
    bench.turns = [
        bench.beats(0, Beat(A, 1, budget=1000)),
        bench.fails(0, None),  # where it was, its heartbeat has said
        bench.beats(1, Beat(B, 1, budget=1000)),
        bench.fails(1, B, "error"),
        bench.ends(2),
    ]
    bench.over(0)
    assert bench.ids() == ["shard0-1", "shard0-2", "shard0-3"]
    assert [avoid for _, _, avoid in bench.submitted] == [set(), {"a"}, {"a", "b"}]
    assert [request.memory for _, request, _ in bench.submitted] == [None, None, 500]
    memories = [task.options.memory for task, _, _ in bench.submitted]
    assert memories == [3_000_000_000, 3_000_000_000, 500]
    told = [(kind, data["task"], data["node"]) for kind, data in bench.events()]
    assert told == [
        ("task_started", "shard0-1", str(A)),
        ("task_failed", "shard0-1", str(A)),
        ("task_started", "shard0-2", str(B)),
        ("task_failed", "shard0-2", str(B)),
        ("task_started", "shard0-3", str(A)),
        ("task_finished", "shard0-3", str(A)),
    ]
    failed = [data for kind, data in bench.events() if kind == "task_failed"]
    assert [data["reason"] for data in failed] == ["lost", "error"]
    assert {data["message"] for data in failed} == {"it failed"}
    assert {data["shard"] for _, data in bench.events()} == {bench.plan.shards[0].name}
    [done] = [data for kind, data in bench.events() if kind == "task_finished"]
    nbytes = bench.plan.shards[0].nbytes
    assert (done["bytes"], done["seconds"], done["peak_rss"]) == (nbytes, 1.5, 77)


def test_where_all_machines_have_failed_none_is_avoided(bench: Bench) -> None:
    bench.alive = MACHINES[:2]
    bench.turns = [bench.fails(0, A), bench.fails(1, B), bench.ends(2)]
    bench.over(0)
    assert [avoid for _, _, avoid in bench.submitted] == [set(), {"a"}, set()]


def test_a_machine_that_a_task_does_not_fit_is_no_other_place(bench: Bench) -> None:
    bench.alive = [MACHINES[0], Machine("head", {"CPU": 0.0})]
    bench.turns = [bench.fails(0, A), bench.ends(1)]
    bench.over(0)
    assert bench.submitted[1][2] == set()


def test_machines_are_asked_for_before_each_task(make: Make) -> None:
    """A machine may have disappeared together with its task."""
    bench = make(threads=None)
    bench.alive = [MACHINES[0], Machine("large", {"CPU": 9.0})]

    def gone() -> list[int]:
        bench.alive = bench.alive[1:]
        return [*bench.fails(0, A)()]

    bench.turns = [gone, bench.ends(1)]
    bench.over(0)
    assert [request.threads for _, request, _ in bench.submitted] == [4, 9]


def here(bench: Bench, monkeypatch: pytest.MonkeyPatch, **outcome: Any) -> list[ShardTask]:
    """Return the tasks that the driver computes in its own process."""
    tasks = []

    def run(task: ShardTask, node: Node, stop: object, reporter: object) -> Any:
        assert (node.id, stop, reporter) == ("", bench.stop, bench.reporter)
        tasks.append(task)
        return outcome.get("of") or bench.publishes(task.shard, node)

    monkeypatch.setattr(driver, "run_task", run)
    return tasks


def test_what_fails_three_times_is_computed_here_after_all_other_tasks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = here(bench, monkeypatch)

    def last() -> list[int]:
        assert not tasks, "another task is at work"
        return [*bench.ends(1)()]

    bench.turns = [bench.fails(0, A), bench.fails(2, B), bench.fails(3, C), last]
    bench.over(0, 1)
    assert bench.ids() == ["shard0-1", "shard1-1", "shard0-2", "shard0-3"]
    [task] = tasks
    assert (task.id, task.options.threads) == ("shard0-4", 2)
    assert bench.is_sealed(0) and bench.is_sealed(1)
    name = bench.plan.shards[0].name
    assert bench.reporter.notes == [
        f"{name} failed 3 times on the cluster: this machine computes it"
    ]
    assert [d["node"].endswith("(driver)") for k, d in bench.events() if k == "task_finished"] == [
        False,
        True,
    ]


def test_what_fails_here_too_stops_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here(bench, monkeypatch, of=Failed(Node("", "here"), Reason.DISK_FULL, "no space"))
    bench.turns = [bench.fails(n, node) for n, node in enumerate(NODES)]
    found = stopped(bench, 0)
    assert found.reason == "disk_full" and "on the cluster or here: no space" in found.message
    *_, (kind, data) = bench.events()
    assert (kind, data["reason"], data["message"]) == ("task_failed", "disk_full", "no space")


def test_what_is_computed_here_and_is_not_there_stops_the_run(
    bench: Bench, computed: ComputedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "VISIBLE_SECONDS", 0.0)
    here(bench, monkeypatch, of=computed.finished[0])
    bench.turns = [bench.fails(n, node) for n, node in enumerate(NODES)]
    assert "another program may be writing there" in stopped(bench, 0).message


def test_what_was_published_and_is_not_there_is_done_again(
    bench: Bench, computed: ComputedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "VISIBLE_SECONDS", 0.0)
    bench.turns = [bench.ends(0, replace(computed.finished[0], node=A)), bench.ends(1)]
    bench.over(0)
    assert bench.submitted[1][2] == {"a"} and bench.is_sealed(0)
    [reason] = [data["reason"] for kind, data in bench.events() if kind == "task_failed"]
    assert reason == "unpublished"


@pytest.mark.parametrize("reason", ["source_changed", "hash_conflict"])
def test_what_would_fail_anywhere_stops_the_run_and_its_tasks(bench: Bench, reason: str) -> None:
    bench.turns = [bench.fails(1, B, reason)]
    found = stopped(bench, 0, 1)
    assert found.reason == reason and found.message == f"{B}: it failed"
    assert bench.cancelled == [0] and bench.watch.looked_at_all == 1
    conflicts = [data for kind, data in bench.events() if kind == "hash_conflict"]
    assert len(conflicts) == (reason == "hash_conflict")
    for data in conflicts:
        shard = bench.plan.shards[1].name
        told = {"shard": shard, "task": "shard1-1", "node": str(B), "message": "it failed"}
        assert data == told


def test_a_worker_that_lacks_what_the_driver_has_stops_the_run(bench: Bench) -> None:
    refused = WorkerRefused(B, ("numpy: 1 at the driver, 2 here", "torch: none here"))
    bench.turns = [bench.ends(0, refused)]
    found = stopped(bench, 0, 1)
    assert found.reason == "cluster" and bench.cancelled == [1]
    assert f"{B} cannot work on this run:\nnumpy: 1 at the driver, 2 here\ntorch" in found.message
    [(kind, data)] = bench.events()
    assert (kind, data["reason"], data["node"]) == ("task_failed", "refused", str(B))


def test_a_task_whose_heartbeat_does_not_change_is_given_up(bench: Bench) -> None:
    bench.turns = [
        bench.beats(0, Beat(A, 1)),
        bench.beats(0, Beat(A, 2), seconds=LIMIT),
        bench.waits(LIMIT),
        bench.waits(1.0),
        bench.ends(1),
    ]

    def still_one() -> list[int]:
        assert bench.ids() == ["shard0-1"] and bench.endpoint_of(0).own_folder.exists()
        return []

    bench.turns.insert(3, still_one)
    bench.over(0)
    assert bench.ids() == ["shard0-1", "shard0-2"] and bench.submitted[1][2] == {"a"}
    assert 0 in bench.cancelled and not bench.endpoint_of(0).own_folder.exists()
    [failed] = [data for kind, data in bench.events() if kind == "task_failed"]
    assert (failed["reason"], failed["message"]) == ("stalled", "no heartbeat for 101 s")


def test_nothing_is_given_up_where_that_is_not_asked_for(make: Make) -> None:
    bench = make(stall_timeout=0)
    bench.turns = [bench.beats(0, Beat(A, 1)), bench.waits(1e6), bench.ends(0)]
    bench.over(0)
    assert bench.ids() == ["shard0-1"]


def test_what_waits_for_its_turn_is_not_late_while_another_task_goes_on(bench: Bench) -> None:
    """A task that waits has the whole limit again when the other task has ended."""
    limit = max(LIMIT, START_SECONDS)
    bench.turns = [
        bench.beats(0, Beat(A, 1)),
        bench.beats(0, Beat(A, 2), seconds=0.9 * limit),
        bench.beats(0, Beat(A, 3), seconds=0.9 * limit),
        bench.ends(0),
        bench.waits(limit),
        bench.ends(1),
    ]
    bench.over(0, 1)
    assert bench.ids() == ["shard0-1", "shard1-1"]


def test_a_task_may_take_its_time_to_start_whatever_the_limit(make: Make) -> None:
    bench = make(stall_timeout=1.0)
    bench.turns = [bench.waits(START_SECONDS), bench.ends(0)]
    bench.over(0)
    assert bench.ids() == ["shard0-1"]


def test_where_no_machine_ever_takes_a_task_the_run_stops(bench: Bench) -> None:
    bench.turns = [bench.waits(LIMIT), bench.waits(1.0)]
    found = stopped(bench, 0)
    assert found.reason == "cluster" and bench.cancelled == [0]
    assert f"{bench.plan.shards[0].name}: no machine had room for it for 101 s" in found.message
    assert "1 processors (--threads)" in found.message and "4 processors, 8 GB" in found.message


def test_what_no_machine_takes_any_more_is_computed_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = here(bench, monkeypatch)
    bench.turns = [bench.ends(0), bench.waits(LIMIT + 1)]
    bench.over(0, 1)
    assert [task.id for task in tasks] == ["shard1-2"] and {*bench.cancelled} == {1}
    [note] = bench.reporter.notes
    assert note.startswith("No machine of the cluster takes ")
    failed = [(d["task"], d["reason"], d["node"]) for k, d in bench.events() if k == "task_failed"]
    assert failed == [("shard1-1", "unscheduled", "")]
    started = [data["task"] for kind, data in bench.events() if kind == "task_started"]
    assert started == ["shard0-1", "shard1-2"], "the other one never was"


def test_a_task_whose_machine_is_gone_is_lost(bench: Bench) -> None:
    """The shard gets another task at once, even if the lost task had a recent heartbeat."""
    bench.turns = [bench.beats(0, Beat(B, 1)), bench.beats(1, Beat(A, 1)), bench.ends(2)]

    def gone() -> list[int]:
        bench.now += HEAD_SECONDS
        bench.alive = [MACHINES[0], MACHINES[2]]
        return []

    bench.turns[2:2] = [gone, bench.ends(1)]
    bench.over(0, 1)
    assert bench.ids() == ["shard0-1", "shard1-1", "shard0-2"]
    [failed] = [data for kind, data in bench.events() if kind == "task_failed"]
    assert failed["reason"] == "lost" and failed["node"] == str(B)


def test_machines_are_asked_for_now_and_then(bench: Bench) -> None:
    def gone() -> list[int]:
        bench.now += HEAD_SECONDS - 0.1
        bench.alive = [MACHINES[0]]
        return []

    looks = bench.waits(HEAD_SECONDS)
    bench.turns = [bench.beats(0, Beat(B, 1)), looks, looks, gone, bench.ends(0)]
    bench.over(0)
    assert bench.ids() == ["shard0-1"]


def test_a_cluster_without_a_machine_for_a_task_is_told_once(bench: Bench) -> None:
    bench.alive = [Machine("head", {"CPU": 0.0})]
    told: list[int] = []

    def count() -> list[int]:
        told.append(len(bench.reporter.notes))
        return []

    seconds = (HEAD_SECONDS, JOIN_SECONDS - HEAD_SECONDS, HEAD_SECONDS, HEAD_SECONDS)
    for each in seconds:
        bench.turns += [bench.waits(each), count]
    bench.turns += [bench.ends(0), bench.ends(1)]
    bench.over(0, 1)
    assert told == [0, 0, 1, 1]
    [note] = bench.reporter.notes
    assert "A task needs 1 processors (--threads). The machines have: 0 processors, 0 B" in note


def test_a_machine_that_joined_counts_from_when_it_was_there_last(bench: Bench) -> None:
    bench.turns = [bench.waits(JOIN_SECONDS)]

    def gone() -> list[int]:
        bench.alive = []
        bench.now += JOIN_SECONDS
        return []

    bench.turns += [gone, bench.ends(0)]
    bench.over(0)
    assert bench.reporter.notes == []


def test_a_head_that_does_not_answer_for_too_long_stops_the_run(bench: Bench) -> None:
    def silent() -> list[int]:
        bench.answering = False
        bench.now += HEAD_SECONDS
        return []

    bench.turns = [silent, bench.waits(LOST_SECONDS - HEAD_SECONDS), bench.waits(HEAD_SECONDS)]
    found = stopped(bench, 0)
    assert found.reason == "cluster" and bench.is_lost and not bench.turns
    assert "has not answered for 25 s" in found.message


def test_a_head_that_answers_again_is_none_that_is_lost(bench: Bench) -> None:
    def says(answers: bool) -> Callable[[], list[int]]:
        def turn() -> list[int]:
            bench.answering = answers
            bench.now += LOST_SECONDS - 1
            return []

        return turn

    bench.turns = [says(False), says(True), says(False), bench.ends(0)]
    bench.over(0)
    assert not bench.is_lost


def test_what_a_lost_task_had_published_is_journaled(bench: Bench) -> None:
    def publishes_and_is_lost() -> list[int]:
        bench.publishes(0)
        return [*bench.fails(0, A)()]

    bench.turns = [publishes_and_is_lost]
    bench.over(0)
    assert bench.ids() == ["shard0-1"] and bench.is_sealed(0)
    kinds = [kind for kind, _ in bench.events()]
    assert kinds == ["task_started", "task_failed", "task_finished"]


def test_a_task_that_is_silent_since_it_published_is_ended(bench: Bench) -> None:
    def publishes() -> list[int]:
        bench.publishes(0)
        bench.now += LIMIT + 1
        return []

    bench.turns = [bench.beats(0, Beat(A, 1)), publishes]
    bench.over(0)
    assert bench.ids() == ["shard0-1"] and bench.is_sealed(0) and bench.cancelled == [0]


@pytest.mark.parametrize("wrong", ["fingerprint", "node", "file"])
def test_what_a_lost_task_may_have_published_is_done_again(
    bench: Bench, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is of another run, comes from an unknown node, or has no file."""
    monkeypatch.setattr(folder, "VISIBLE_SECONDS", 0.0)

    def publishes_and_is_lost() -> list[int]:
        finished = bench.publishes(0)
        other = replace(finished.record, fingerprint="0" * 64)
        if wrong == "fingerprint":
            folder.write_record(bench.endpoint_of(0).folder, 0, other, bench.context.storage)
        if wrong == "file":
            bench.files.final(bench.plan.shards[0]).unlink()
        return [*bench.fails(0, None if wrong == "node" else A)()]

    bench.turns = [publishes_and_is_lost, bench.ends(1)]
    bench.over(0)
    assert bench.ids() == ["shard0-1", "shard0-2"] and bench.is_sealed(0)


def test_another_task_of_a_shard_that_is_done_is_ended(bench: Bench) -> None:
    """The end of a superfluous task is not a failure, and a silent task may finish first."""

    def other_is_given_up() -> list[int]:
        assert bench.cancelled == [0, 2] and not bench.endpoint_of(2).own_folder.exists()
        return [*bench.fails(2, C)()]

    bench.turns = [
        bench.beats(0, Beat(A, 1)),
        bench.beats(1, Beat(B, 1)),
        bench.beats(1, Beat(B, 2), seconds=LIMIT + 1),
        bench.beats(2, Beat(C, 1)),
        bench.ends(0),
        other_is_given_up,
        bench.ends(1),
    ]
    bench.over(0, 1)
    assert bench.ids() == ["shard0-1", "shard1-1", "shard0-2"]
    assert bench.is_sealed(0) and bench.is_sealed(1)
    failed = [(data["task"], data["reason"]) for kind, data in bench.events() if "fail" in kind]
    assert failed == [("shard0-1", "stalled")]


def test_what_tasks_moved_counts(bench: Bench) -> None:
    def moved() -> list[int]:
        bench.outcomes[0] = bench.publishes(0, bytes_received=9, requests=4)
        return [0]

    bench.turns = [moved]
    bench.over(0)
    assert bench.moved.told == [(9, 4)]


def test_progress_is_what_is_journaled_and_what_tasks_have_written(bench: Bench) -> None:
    shards, total = bench.plan.shards, sum(unit.nbytes for unit in bench.plan.units)
    bench.turns = [
        bench.beats(0, Beat(A, 1, nbytes=100)),
        bench.beats(1, Beat(B, 1, nbytes=10)),
        bench.ends(0),
        bench.beats(1, Beat(B, 2, nbytes=total)),
        bench.ends(1),
    ]
    bench.over(0, 1)
    of_first = shards[0].last - shards[0].first
    first = sum(unit.nbytes for unit in bench.plan.units[: shards[0].last])
    done = [p.bytes_done for p in bench.reporter.progress]
    assert done[:2] == [100, 110]
    [sealed] = [p for p in bench.reporter.progress if p.unit == shards[0].name]
    assert (sealed.bytes_done, sealed.bytes_total) == (first + 10, total)
    assert (sealed.units_done, sealed.units_total) == (of_first, len(bench.plan.units))
    assert max(done) == total


def test_a_signal_ends_the_tasks(bench: Bench) -> None:
    def signalled() -> list[int]:
        bench.stop.signum = signal.SIGTERM
        return []

    bench.turns = [signalled]
    with pytest.raises(Interrupted):
        bench.over(0, 1)
    assert bench.cancelled == [0, 1]


def test_a_driver_that_must_not_go_on_ends_its_tasks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may have taken the lease over."""

    def check() -> None:
        raise Resumable(Reason.MIRROR_TAKEN_OVER, "Another machine")

    monkeypatch.setattr(bench.exchange, "check", check)
    assert stopped(bench, 0).reason == "mirror_taken_over" and bench.cancelled == [0]


def test_an_outcome_is_of_the_class_that_it_says(bench: Bench, computed: ComputedShards) -> None:
    """The bench makes outcomes of the classes that tasks return."""
    assert isinstance(computed.finished[0], Finished)
    assert isinstance(bench.publishes(0).record, type(computed.finished[0].record))
