"""Promise: a merge on a Ray cluster has the bytes of one machine, whatever dies or stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from cluster_runs import (
    CODE,
    HELD,
    SHARD_SIZE,
    ClusterRuns,
    counted,
    events,
    in_files,
    is_at_work,
    is_stopped,
    recipe_in,
    state_of,
)
from merging import shards_of
from waiting import wait_until

import resumerge
from resumerge.engine.cluster import driver
from resumerge.engine.reporter import Reporter
from resumerge.engine.shards.shard_files import TASKS
from resumerge.errors import InputError, Resumable

POINTS = ("start", "middle", "publish", "renamed", "return")
OF_THE_HUB = """
merge_method: mean_with_accidents
models: [{model: org/math}, {model: org/code}]
"""
STALLED = 8.0
"""The stall timeout in seconds."""


def on_cluster(runs: ClusterRuns, out: Path, **options: object) -> None:
    resumerge.run(
        recipe_in(runs.models),
        out,
        state_dir=state_of(out),
        shard_size=SHARD_SIZE,
        ray=runs.cluster.address,
        threads=1,
        **options,  # type: ignore[arg-type]
    )


def test_each_shard_is_a_task(runs: ClusterRuns, tmp_path: Path) -> None:
    out = tmp_path / "model"
    runs.cluster.lay("start-meet-0", "start-meet-1")  # so that two machines work
    on_cluster(runs, out)
    assert runs.is_same(out)
    assert counted(out) == {"task_started": 4, "task_finished": 4}
    finished = [data for kind, data in events(out) if kind == "task_finished"]
    assert {data["shard"] for data in finished} == set(shards_of(out))
    assert len({data["node"] for data in finished}) == 2, "both machines worked"
    assert all(data["bytes"] and data["seconds"] and data["peak_rss"] for data in finished)


def kills(soak: bool) -> list[tuple[str, ...]]:
    """Return the accidents of each merge: two workers, or with --soak each point of each shard."""
    some = [("middle-kill-1", "middle-kill-2"), ("renamed-kill-0", "renamed-kill-3")]
    return [(f"{point}-kill-{n}",) for point in POINTS for n in range(4)] if soak else some


def test_workers_that_are_killed(runs: ClusterRuns, tmp_path: Path, soak: bool) -> None:
    for number, accidents in enumerate(kills(soak)):
        out = tmp_path / f"model{number}"
        runs.cluster.lay(*accidents)
        on_cluster(runs, out)
        assert runs.is_same(out), accidents
        found = counted(out)
        assert (found["task_failed"], found["task_finished"]) == (len(accidents), 4), accidents
        failed = [data for kind, data in events(out) if kind == "task_failed"]
        assert {data["reason"] for data in failed} == {"lost"}


def test_a_task_that_fails_is_done_elsewhere_then_here(runs: ClusterRuns, tmp_path: Path) -> None:
    out = tmp_path / "model"
    runs.cluster.lay("publish-raise-2a", "publish-raise-2b", "publish-raise-2c")
    on_cluster(runs, out)
    assert runs.is_same(out)
    failed = [data for kind, data in events(out) if kind == "task_failed"]
    finished = [data for kind, data in events(out) if kind == "task_finished"]
    assert len({data["shard"] for data in failed}) == 1 and len(failed) == 3
    assert failed[0]["node"] != failed[1]["node"]
    [here] = [data["shard"] for data in finished if data["node"].endswith("(driver)")]
    assert here == failed[0]["shard"] and len(finished) == 4


def test_a_machine_that_is_killed(runs: ClusterRuns, tmp_path: Path) -> None:
    """The stopped worker outlives its machine with an open connection, for which Ray waits."""
    out = tmp_path / "model"
    runs.cluster.lay("middle-stop-0")
    process = runs.begin(out)
    [victim] = wait_until(runs.cluster.victims)
    wait_until(lambda: is_stopped(victim))
    runs.cluster.kill_one_with(victim)
    assert is_stopped(victim), "and not dead"
    assert process.wait() == 0, process.stderr and process.stderr.read()
    runs.cluster.add_machine()
    assert runs.is_same(out)
    found = counted(out)
    assert (found["task_failed"], found["task_finished"]) == (1, 4)
    [failed] = [data for kind, data in events(out) if kind == "task_failed"]
    assert failed["reason"] == "lost"


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_wakes_when_its_shard_is_done(
    runs: ClusterRuns, tmp_path: Path, point: str, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if point != "publish" and not soak:
        pytest.skip("one point is enough for every day: the others with --soak")
    # Before it publishes, a sleeper holds the only room: its task waits in vain, not for long.
    # The workers of the others may need minutes to start where the machine is busy.
    monkeypatch.setattr(driver, "START_SECONDS", 600.0 if point == "publish" else 15.0)
    out = tmp_path / "model"
    runs.cluster.lay(f"{point}-stop-0")
    on_cluster(runs, out, stall_timeout=STALLED)
    [sleeper] = runs.cluster.victims()
    assert runs.is_same(out)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    with suppress(ProcessLookupError):  # Ray may have ended what it was told to cancel
        os.kill(sleeper, signal.SIGCONT)
    wait_until(lambda: not is_at_work(sleeper))
    assert runs.is_same(out)
    assert before == {path: path.stat().st_mtime_ns for path in out.iterdir()}
    failed = {data["reason"] for kind, data in events(out) if kind == "task_failed"}
    assert failed <= {"stalled", "unscheduled"} and failed
    assert counted(out)["task_finished"] == 4


@pytest.mark.parametrize("again", [["--ray"], []], ids=["with Ray", "without"])
def test_a_driver_that_is_killed(runs: ClusterRuns, tmp_path: Path, again: list[str]) -> None:
    out = tmp_path / "model"
    runs.cluster.lay("middle-meet-0", "middle-meet-1", held := "middle-meet-9")  # none comes to it
    process = runs.begin(out, "--no-supervise")
    wait_until(lambda: len(runs.cluster.victims()) == 2, process)
    process.send_signal(signal.SIGSTOP)  # so that it journals nothing of what is published
    wait_until(lambda: is_stopped(process.pid), process)
    (runs.cluster.accidents / held).unlink()
    wait_until(lambda: len(shards_of(out)) >= 2, process)
    process.kill()
    process.wait()
    known, published = counted(out)["task_finished"], len(shards_of(out))
    words = again and [*again, runs.cluster.address, "--threads", "1"]
    resumed = runs.command("resume", str(out), "--state-dir", str(state_of(out)), *words)
    assert resumed.wait() == 0, resumed.stderr and resumed.stderr.read()
    assert runs.is_same(out)
    found = counted(out)
    assert found["shard_adopted"] == published - known > 0
    computed = 4 - published if again else 0
    assert found["task_finished"] == known + computed, "nothing was computed twice"


def test_a_driver_that_is_stopped(runs: ClusterRuns, tmp_path: Path) -> None:
    out = tmp_path / "model"
    runs.cluster.lay("return-stop-1", "middle-stop-2")
    process = runs.begin(out)
    wait_until(lambda: len(runs.cluster.victims()) == 2)
    # All but the shard of the worker that stopped before it returned are journaled.
    wait_until(lambda: counted(out)["task_finished"] + 1 == len(shards_of(out)), process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert (
        process.stderr is not None and "resumerge resume" in process.stderr.read().splitlines()[-1]
    )
    assert not (out / TASKS).exists() and not list(out.glob("*.partial"))
    done = shards_of(out)
    found = counted(out)
    assert found["shard_adopted"] == 1 and found["task_finished"] + 1 == len(done) < 4
    resumerge.resume(str(out), state_dir=state_of(out))
    assert runs.is_same(out)


def test_a_mirror_gets_the_shards_of_every_machine(runs: ClusterRuns, tmp_path: Path) -> None:
    out, mirror = tmp_path / "model", tmp_path / "mirror"
    on_cluster(runs, out, mirror=str(mirror))
    assert runs.is_same(out)
    assert shards_of(mirror) == shards_of(runs.plain) and (mirror / "config.json").exists()


def on_the_hub(runs: ClusterRuns, out: Path, *further: str) -> None:
    """Merge models of the Hub by the command line, with a cache of its own."""
    for name in ("math", "code"):
        runs.cluster.hub.commit(f"org/{name}", in_files(runs.models / name, 4))
    config = out.with_name("recipe.yaml")
    config.write_text(OF_THE_HUB)
    words = ("run", str(config), str(out), "--state-dir", str(state_of(out)), "--threads", "1")
    home = {"HF_HOME": str(home_of(out))}
    merging = runs.command(*words, "--shard-size", str(SHARD_SIZE), *further, **home)
    assert merging.wait() == 0, merging.stderr and merging.stderr.read()


def home_of(out: Path) -> Path:
    return out.with_name("hf")


def test_a_streamed_model_is_streamed_by_every_machine(runs: ClusterRuns, tmp_path: Path) -> None:
    """The driver has downloaded the model before, but the machines do not use its cache."""
    hub, plain, out = runs.cluster.hub, tmp_path / "plain", tmp_path / "model"
    on_the_hub(runs, plain)
    hub.forget_requests()
    on_the_hub(runs, out, "--stream", "--ray", runs.cluster.address)
    assert shards_of(out) == shards_of(plain)
    assert not runs.cluster.caches()
    [streamed] = [data for kind, data in events(out) if kind == "streamed"]
    assert streamed["requests"] > 0
    assert streamed["bytes"] == sum(
        nbytes for name, nbytes in hub.files_served().items() if name.endswith(".safetensors")
    )


def test_each_machine_downloads_to_a_cache_of_its_own(runs: ClusterRuns, tmp_path: Path) -> None:
    plain, out = tmp_path / "plain" / "model", tmp_path / "ray" / "model"
    for where in (plain, out):
        where.parent.mkdir()
    on_the_hub(runs, plain)
    runs.cluster.lay("start-meet-0", "start-meet-1")  # so that two machines work
    on_the_hub(runs, out, "--ray", runs.cluster.address)
    assert shards_of(out) == shards_of(plain)
    assert not list(home_of(out).rglob("*.safetensors")), "the driver needs none"
    assert len(runs.cluster.caches()) == 2


def test_two_machines_that_disagree(runs: ClusterRuns, tmp_path: Path) -> None:
    out = tmp_path / "model"
    words = ("--shard-size", "1MB", "--threads", "1", "--state-dir", str(state_of(out)))
    config, wrong = str(recipe_in(runs.models)), {"OTHERWISE": "0.5", **HELD}
    other = runs.command("run", config, str(out), *words, **wrong)
    wait_until(lambda: list(out.glob("*.partial")), other)
    before = wait_until(lambda: committed(out), other)
    other.send_signal(signal.SIGINT)
    assert other.wait() == 130
    with pytest.raises(Resumable) as stopped:
        resumerge.resume(str(out), state_dir=state_of(out), ray=runs.cluster.address, threads=1)
    assert stopped.value.reason == "hash_conflict"
    [conflict] = [data for kind, data in events(out) if kind == "hash_conflict"]
    assert conflict["first"] in str(stopped.value) and conflict["second"] in str(stopped.value)
    assert conflict["first"] != conflict["second"]
    assert {path.suffix for path in out.iterdir()} == {".partial"}
    assert committed(out) >= before, "the first is kept"


def committed(out: Path) -> int:
    return int(resumerge.status(str(out), state_dir=state_of(out))["runs"][0]["units"]["committed"])


def test_a_machine_with_other_code_is_refused(runs: ClusterRuns, tmp_path: Path) -> None:
    out, code = tmp_path / "model", tmp_path / "other.py"
    code.write_text(CODE.read_text().replace("version = 1", "version = 2"))
    odd = runs.cluster.add_machine({"odd": 1.0}, RESUMERGE_METHODS=str(code))
    try:
        with pytest.raises(Resumable) as stopped:
            on_cluster(runs, out, ray_resources="odd=1")
    finally:
        runs.cluster.kill(odd)
    assert "version 1 from" in str(stopped.value) and "version 2 from" in str(stopped.value)
    assert not shards_of(out)
    resumerge.resume(str(out), state_dir=state_of(out))
    assert runs.is_same(out)


class Notes(Reporter):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_tasks_that_no_machine_can_take(
    runs: ClusterRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver soon reports that no machine fits, and the run stops after the stall timeout."""
    monkeypatch.setattr(driver, "JOIN_SECONDS", 1.0)
    monkeypatch.setattr(driver, "START_SECONDS", 15.0)
    reporter, asked = Notes(), {"ray_resources": "nowhere=1", "stall_timeout": 15.0}
    with pytest.raises(Resumable) as stopped:
        on_cluster(runs, tmp_path / "model", reporter=reporter, **asked)
    needs = "A task needs 1 processors (threads), nowhere=1 (ray_resources). The machines have"
    assert stopped.value.reason == "cluster" and "no machine had room for it" in str(stopped.value)
    assert f"{needs}: 0 processors" in str(stopped.value)
    [note] = [note for note in reporter.notes if "No machine" in note]
    assert note.startswith(f"No machine of the cluster can take a task. {needs}")


def test_a_machine_that_comes_later_and_alone_fits(runs: ClusterRuns, tmp_path: Path) -> None:
    """A failed task is submitted again to the only machine that fits."""
    out = tmp_path / "model"
    runs.cluster.lay("publish-raise-2")
    process = runs.begin(out, "--ray-resources", "late=1")
    wait_until(lambda: [*out.glob(f"{TASKS}/*")])
    late = runs.cluster.add_machine({"late": 1.0})
    try:
        assert process.wait() == 0, process.stderr and process.stderr.read()
    finally:
        runs.cluster.kill(late)
    assert runs.is_same(out)
    nodes = {data["node"] for _, data in events(out)}
    assert counted(out)["task_failed"] == 1 and len(nodes) == 1


@pytest.mark.parametrize("address", ["local", "192.0.2.1:6379"])
def test_a_process_that_is_connected_to_another_cluster(
    runs: ClusterRuns, tmp_path: Path, address: str
) -> None:
    with pytest.raises(InputError) as refused:
        resumerge.run(recipe_in(runs.models), tmp_path / "model", ray=address)
    assert "connected to a Ray cluster already" in str(refused.value)
    assert runs.cluster.address in str(refused.value) and 'ray="auto"' in str(refused.value)
    assert not (tmp_path / "model").exists()


def test_a_run_that_is_started_over(runs: ClusterRuns, tmp_path: Path) -> None:
    out = tmp_path / "model"
    runs.cluster.lay("middle-meet-3", held := "middle-meet-9")  # which no worker comes to
    process = runs.begin(out, "--no-supervise")
    wait_until(lambda: len(shards_of(out)) >= 1)
    process.kill()
    process.wait()
    assert (out / TASKS).is_dir()
    (runs.cluster.accidents / held).unlink()
    on_cluster(runs, out, restart=True)
    assert runs.is_same(out)


def test_status_shows_what_each_machine_did(runs: ClusterRuns, tmp_path: Path) -> None:
    out = tmp_path / "model"
    runs.cluster.lay("start-kill-1")
    on_cluster(runs, out)
    shown = runs.command("status", str(out), "--state-dir", str(state_of(out)), "--json")
    told = json.loads(shown.communicate()[0])["runs"][0]["cluster"]
    assert told["tasks"] == {"started": 5, "finished": 4, "failed": 1}
    assert sum(node["finished"] for node in told["nodes"]) == 4
    assert all(node["bytes_per_s"] > 0 for node in told["nodes"] if node["finished"])


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_head_that_hangs_or_dies(
    runs: ClusterRuns, tmp_path: Path, soak: bool, number: signal.Signals
) -> None:
    if not soak:
        pytest.skip("the cluster is lost, and waited for: with --soak")
    out = tmp_path / "model"
    runs.cluster.lay("middle-stop-1")
    process = runs.begin(out)
    wait_until(runs.cluster.victims)
    with runs.cluster.signalled_head(number):
        check_that_it_is_told(runs, out, process)


def check_that_it_is_told(runs: ClusterRuns, out: Path, process: subprocess.Popen[str]) -> None:
    """Check that a merge stops because of its cluster's head, and continues without a cluster."""
    assert process.wait() == 75
    assert process.stderr is not None
    assert "resumerge resume" in process.stderr.read().splitlines()[-1]
    assert not (out / TASKS).exists()
    resumerge.resume(str(out), state_dir=state_of(out))
    assert runs.is_same(out)
