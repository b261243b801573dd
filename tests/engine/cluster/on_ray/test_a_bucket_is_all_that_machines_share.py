"""Promise: machines that share nothing but a bucket merge to the bytes of one machine, and leave
nothing behind, whatever dies or stops."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from bucket_runs import BucketRun
from cluster_runs import (
    HELD,
    SHARD_SIZE,
    ClusterRuns,
    counted,
    events,
    is_at_work,
    is_stopped,
    recipe_in,
    state_of,
)
from loopback_s3 import Bucket, Proxy, Server, before, start
from loopback_s3.servers import KEY_ID, SECRET, missing
from waiting import wait_until

import resumerge
from resumerge.engine.cluster import driver
from resumerge.errors import Resumable

POINTS = ("start", "middle", "publish", "sent", "uploaded", "renamed", "return")
STALLED = 8.0
"""The stall timeout in seconds."""


@pytest.fixture(scope="module", params=["moto", "seaweedfs"])
def s3(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """Yield a proxy in front of an S3 server, which can make requests fail."""
    soak = request.config.getoption("--soak")
    if request.param == "seaweedfs" and not soak:
        pytest.skip("one kind of server is enough for every day: the other with --soak")
    if why := missing(request.param):
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("S3_UPLOAD_PART_MIN_SIZE", "1")  # moto's: see `env_of`
        with start(request.param) as server, before(server.endpoint) as proxy:
            proxy.server = server  # type: ignore[attr-defined]
            yield proxy


def env_of(s3: Proxy) -> dict[str, str]:
    server: Server = s3.server  # type: ignore[attr-defined]
    env = {**server.env(s3.endpoint), "RESUMERGE_LEASE_SECONDS": "4"}
    return env | {"UPLOAD_PART": "5000"} if is_moto(s3) else env  # SeaweedFS refuses such parts


def is_moto(s3: Proxy) -> bool:
    return "moto" in str(s3.server.process.args)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def machine_env(s3: Proxy) -> dict[str, str]:
    return env_of(s3)


@pytest.fixture
def run(runs: ClusterRuns, s3: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BucketRun:
    for name, value in env_of(s3).items():
        monkeypatch.setenv(name, value)
    return BucketRun(runs, Bucket(env_of(s3)), tmp_path / "model")


@pytest.fixture
def only_soak(soak: bool) -> None:
    if not soak:
        pytest.skip("it takes long: with --soak")


def failures(run: BucketRun) -> list[str]:
    return [data["reason"] for kind, data in events(run.out) if kind == "task_failed"]


def test_each_machine_puts_its_shards_there(run: BucketRun) -> None:
    models = {path: path.stat().st_mtime_ns for path in run.runs.models.glob("*/*")}
    given = {"ray": run.runs.cluster.address, "threads": 1, "shard_size": SHARD_SIZE}
    run.runs.cluster.lay("start-meet-0", "start-meet-1")  # so that two machines work
    resumerge.run(recipe_in(run.runs.models), run.url, state_dir=state_of(run.out), **given)
    run.check_finished()
    assert counted(run.out) == {"task_started": 4, "task_finished": 4}
    finished = [data for kind, data in events(run.out) if kind == "task_finished"]
    assert len({data["node"] for data in finished}) == 2, "both machines worked"
    assert resumerge.verify(run.url).intact
    assert {path.name for path in run.out.parent.iterdir()} == {state_of(run.out).name}
    assert not list(state_of(run.out).rglob("*.safetensors")), "nothing of it was ever here"
    assert not list(run.runs.cluster.folder.glob("machine*/tmp/resumerge-*"))
    assert models == {path: path.stat().st_mtime_ns for path in run.runs.models.glob("*/*")}


def test_models_that_are_streamed_from_there(run: BucketRun, only_soak: None) -> None:
    """No machine has a model, or any shard of the result, on its disk."""
    recipe = recipe_in(run.runs.models).read_text()
    for model in ("base", "math", "code"):
        for path in (run.runs.models / model).iterdir():
            run.bucket.put(f"models/{model}/{path.name}", path.read_bytes())
    recipe = recipe.replace(str(run.runs.models), f"{run.bucket.url}/models")
    path = run.out.with_name("recipe.yaml")
    path.write_text(recipe)
    given = {"ray": run.runs.cluster.address, "threads": 1, "shard_size": SHARD_SIZE}
    resumerge.run(path, run.url, state_dir=state_of(run.out), stream=True, **given)
    found = {name: data for name, data in run.files().items() if name.endswith(".safetensors")}
    assert (
        found == {name: (run.runs.plain / name).read_bytes() for name in found} and len(found) == 4
    )
    assert resumerge.verify(run.url).intact
    homes = [path for path in run.runs.cluster.folder.rglob("*") if path.is_file()]
    assert not [path for path in homes if path.suffix == ".safetensors" or "blobs" in path.parts]


def kills(soak: bool) -> list[tuple[str, ...]]:
    """Return the accidents of each merge; with --soak one at each point of each shard."""
    some = [("sent-kill-0", "uploaded-kill-1", "renamed-kill-2", "middle-kill-3")]
    return [(f"{point}-kill-{n}",) for point in POINTS for n in range(4)] if soak else some


def test_workers_that_are_killed(run: BucketRun, s3: Proxy, tmp_path: Path, soak: bool) -> None:
    for number, accidents in enumerate(kills(soak)):
        merge = BucketRun(run.runs, run.bucket, tmp_path / f"model{number}")
        run.runs.cluster.lay(*accidents)
        merge.merge()
        merge.check_finished()
        found = counted(merge.out)
        recorded = sum(name.startswith(("renamed", "return")) for name in accidents)
        assert (found["task_failed"], found["task_finished"]) == (len(accidents), 4), accidents
        assert found["task_started"] == 4 + len(accidents) - recorded, "what is there is used"
        assert set(failures(merge)) == {"lost"}
    in_parts = any("partNumber=2" in path for _, path in s3.requests)
    assert in_parts == is_moto(s3)


def tasks(run: BucketRun, what: bytes) -> int:
    """Return how many tasks have written a heartbeat (``node``) or a ``record``."""
    objects = run.bucket.api.list_objects_v2(Bucket=run.bucket.name, Prefix=run.prefix)
    found = []
    for item in objects.get("Contents", ()):
        if "/task-" in item["Key"]:
            with suppress(run.bucket.api.exceptions.NoSuchKey):
                found.append(run.bucket.api.get_object(Bucket=run.bucket.name, Key=item["Key"]))
    return sum(b'"%b": {' % what in answer["Body"].read() for answer in found)


AGAIN = ["elsewhere", "here", "with Ray", "elsewhere with Ray"]


@pytest.mark.parametrize("again", AGAIN)
def test_a_driver_that_is_killed(run: BucketRun, tmp_path: Path, soak: bool, again: str) -> None:
    if again != AGAIN[0] and not soak:
        pytest.skip("one way to go on is enough for every day: the others with --soak")
    cluster = run.runs.cluster
    cluster.lay("middle-meet-0", "middle-meet-1", held := "middle-meet-9")  # none comes to it
    process = run.begin()
    wait_until(lambda: len(cluster.victims()) == 2, process)
    process.send_signal(signal.SIGSTOP)  # so that it journals nothing of what is published
    wait_until(lambda: is_stopped(process.pid), process)
    (cluster.accidents / held).unlink()
    wait_until(lambda: tasks(run, b"record") >= 2, process)
    process.kill()
    process.wait()
    known, there = counted(run.out)["task_finished"], tasks(run, b"record")
    home, out = {"HOME": str(tmp_path / "home")}, run.out
    if again.startswith("elsewhere"):
        out = tmp_path / "other"
        words = (run.url, "--output", str(out), "--state-dir", str(state_of(out)))
    else:
        words = (str(out), "--state-dir", str(state_of(out)))
    on_ray = ("--ray", run.runs.cluster.address) if again.endswith("with Ray") else ()
    resumed = run.resume(*words, *on_ray, **home)
    assert resumed.wait() == 0, resumed.stderr and resumed.stderr.read()
    run.check_finished()
    found = counted(out)
    assert found["shard_adopted"] >= there - known > 0
    if again == "here":
        assert found["task_finished"] == known
    elif again == "elsewhere":  # as many as the newest snapshot knew of
        assert found["task_finished"] <= known
    else:
        assert found["task_finished"] + found["shard_adopted"] == 4


def test_a_driver_that_is_stopped(run: BucketRun, only_soak: None) -> None:
    run.runs.cluster.lay("return-stop-1", "middle-stop-2")
    process = run.begin()
    wait_until(lambda: len(run.runs.cluster.victims()) == 2)
    # All but the shard of the worker that stopped before it returned are journaled.
    wait_until(lambda: counted(run.out)["task_finished"] + 1 == len(run.shards()), process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    done = run.shards()
    found = counted(run.out)
    assert found["shard_adopted"] == 1 and found["task_finished"] + 1 == len(done) < 4
    resumerge.resume(str(run.out), state_dir=state_of(run.out))
    run.check_finished()
    assert counted(run.out)["shard_adopted"] == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_wakes_when_its_shard_is_done(
    run: BucketRun, point: str, only_soak: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "START_SECONDS", 15.0)
    run.runs.cluster.lay(f"{point}-stop-0")
    run.merge(stall_timeout=STALLED)
    [sleeper] = run.runs.cluster.victims()
    run.check_finished()
    before = run.files()
    with suppress(ProcessLookupError):  # Ray may have ended what it was told to cancel
        os.kill(sleeper, signal.SIGCONT)
    wait_until(lambda: not is_at_work(sleeper))
    run.check_finished()
    assert run.files() == before
    assert counted(run.out)["task_finished"] == 4
    assert set(failures(run)) <= {"stalled", "unscheduled"} and failures(run)


def test_a_machine_that_is_killed(run: BucketRun, only_soak: None) -> None:
    run.runs.cluster.lay("middle-stop-0")
    process = run.begin()
    [victim] = wait_until(run.runs.cluster.victims)
    run.runs.cluster.kill_one_with(victim)
    assert process.wait() == 0, process.stderr and process.stderr.read()
    run.runs.cluster.add_machine()
    run.check_finished()
    assert failures(run) == ["lost"] and counted(run.out)["task_finished"] == 4


def test_a_run_that_is_started_over(run: BucketRun, only_soak: None) -> None:
    run.runs.cluster.lay("uploaded-stop-0")
    process = run.begin()
    wait_until(lambda: tasks(run, b"record") >= 1 and len(run.shards()) >= 2)
    process.kill()
    process.wait()
    run.merge(restart=True, stall_timeout=STALLED)
    run.check_finished()


def test_two_machines_that_disagree(run: BucketRun, tmp_path: Path, only_soak: None) -> None:
    """The second machine finds a shard of the first, killed before it wrote its record."""
    accidents = tmp_path / "odd"
    accidents.mkdir()
    for number in range(4):
        (accidents / f"uploaded-kill-{number}").touch()
    odd = run.runs.cluster.add_machine(OTHERWISE="0.5", ACCIDENTS=str(accidents))
    try:
        with pytest.raises(Resumable) as stopped:
            run.merge()
    finally:
        run.runs.cluster.kill(odd)
    assert stopped.value.reason == "hash_conflict"
    assert [kind for kind, _ in events(run.out)].count("hash_conflict") == 1
    resumerge.resume(str(run.out), state_dir=state_of(run.out), ray=run.runs.cluster.address)
    run.check_finished()


def test_what_was_committed_first_is_kept(run: BucketRun, only_soak: None) -> None:
    words = ("--mirror", run.url, "--mirror-then-delete", "--shard-size", "1MB", "--threads", "1")
    config, state = str(recipe_in(run.runs.models)), ("--state-dir", str(state_of(run.out)))
    wrong = {"OTHERWISE": "0.5", **HELD}
    other = run.runs.command("run", config, str(run.out), *words, *state, **wrong)
    wait_until(lambda: list(run.out.glob("*.partial")), other)
    before = wait_until(lambda: committed(run), other)
    other.send_signal(signal.SIGINT)
    assert other.wait() == 130
    with pytest.raises(Resumable) as stopped:
        resumerge.resume(
            str(run.out), state_dir=state_of(run.out), ray=run.runs.cluster.address, threads=1
        )
    assert stopped.value.reason == "hash_conflict"
    [conflict] = [data for kind, data in events(run.out) if kind == "hash_conflict"]
    assert conflict["first"] != conflict["second"] and conflict["first"] in str(stopped.value)
    assert not run.shards(), "what contradicts it is no shard of this run"
    assert committed(run) >= before


def committed(run: BucketRun) -> int:
    found = resumerge.status(str(run.out), state_dir=state_of(run.out))["runs"][0]
    return int(found["units"]["committed"])


def test_a_store_that_fails_for_a_minute(run: BucketRun, s3: Proxy, only_soak: None) -> None:
    """The store fails for a minute, from the first upload on."""
    began: float | None = None

    def choose(method: str, path: str) -> str | None:
        nonlocal began
        if began is None and method != "GET" and ".safetensors" in path:
            began = time.monotonic()
        return "503" if began is not None and time.monotonic() - began < 60.0 else None

    s3.choose = choose
    try:
        run.merge()
    except Resumable as stopped:
        assert stopped.reason == "mirror"
        s3.choose = lambda method, path: None
        resumerge.resume(str(run.out), state_dir=state_of(run.out))
    finally:
        s3.choose = lambda method, path: None
    assert s3.wrong["503"] > 0
    run.check_finished()


def test_a_machine_that_may_not_write_there_is_refused(run: BucketRun, only_soak: None) -> None:
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    odd = run.runs.cluster.add_machine({"odd": 1.0}, **nobody)
    try:
        with pytest.raises(Resumable) as stopped:
            run.merge(ray_resources="odd=1")
    finally:
        run.runs.cluster.kill(odd)
    assert "cannot be used from here" in str(stopped.value)
    assert "no usable credentials" in str(stopped.value)
    assert not run.shards()
    resumerge.resume(str(run.out), state_dir=state_of(run.out))
    run.check_finished()


def test_no_secret_is_written_anywhere(run: BucketRun, tmp_path: Path, only_soak: None) -> None:
    log = tmp_path / "log"
    run.runs.cluster.lay("publish-raise-2")
    process = run.begin("-vv", RESUMERGE_LOG=f"debug:{log}")
    said = [*process.communicate()]
    assert process.returncode == 0, said
    run.check_finished()
    report = tmp_path / "report.html"
    shown = run.runs.command(
        "status", str(run.out), "--state-dir", str(state_of(run.out)), "--html", str(report)
    )
    said += shown.communicate()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    files += [path for path in run.runs.cluster.folder.rglob("*") if path.is_file()]
    assert {log, report} <= set(files)
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    assert all(SECRET.encode() not in data for data in run.files().values())
    assert SECRET not in "".join(said) and KEY_ID not in "".join(said)
