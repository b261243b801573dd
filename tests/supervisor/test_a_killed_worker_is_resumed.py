"""Promise: a worker that dies or stalls is started again; the ledger has the cause of its death."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import slow_average
from cgroups import memory_cgroup
from supervised import ONE_STALL, Supervised
from waiting import wait_until

MB = 10**6
STALL_SECONDS = "1"


def test_killed_by_somebody(merge: Supervised, reference: dict[str, bytes]) -> None:
    process = merge.start("--json")
    os.kill(merge.wait_until_committed(process), signal.SIGKILL)
    stdout, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert merge.files() == reference
    first, *others = merge.outcomes()  # the kernel may have ended another process of the machine
    assert first in ("killed", "oom") and others == ["done"]
    [event] = merge.events("worker_killed")
    assert (event["cause"], event["signal"]) == (first, "SIGKILL")
    lines = [json.loads(line) for line in stdout.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds.count("worker_killed") == 1
    assert [line["resumed"] for line in lines if line["kind"] == "planned"] == [False, True]
    assert kinds[-1] == "done"


def test_killed_by_the_kernel_for_want_of_memory(
    merge: Supervised, reference: dict[str, bytes]
) -> None:
    try:
        with memory_cgroup(4000 * MB) as group:
            process = group.start(merge.command, **merge.options)
            merge.wait_until_committed(process)
            group.limit(700 * MB)
            (merge.accidents / "hunger").touch()
            _, stderr = merge.end(process)
            kills = group.kills
    except PermissionError as error:
        pytest.skip(str(error))
    assert process.returncode == 0, stderr
    assert kills == 1
    assert merge.files() == reference
    assert merge.outcomes() == ["oom", "done"]
    [event] = merge.events("worker_killed")
    assert event["cause"] == "oom"
    assert "killed by the kernel" in stderr
    assert stderr.count("largest tensor") == 1, "what the run is, is said once"
    [first, second] = merge.rows(
        "SELECT max(budget) AS budget FROM samples GROUP BY attempt ORDER BY attempt"
    )
    assert second["budget"] <= first["budget"] / 2


def test_a_worker_that_is_refused_says_why(merge: Supervised) -> None:
    process = merge.start("--json")
    worker = merge.wait_until_committed(process)
    recipe = merge.folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("math", "base"))
    os.kill(worker, signal.SIGKILL)
    stdout, stderr = merge.end(process)
    assert process.returncode == 75, stderr
    last = json.loads(stdout.splitlines()[-1])
    assert (last["kind"], last["reason"]) == ("error", "refused")
    assert "The recipe has changed since the run was created" in last["message"]
    assert stderr.splitlines()[-1] == last["resume"]


def test_crashed(merge: Supervised, reference: dict[str, bytes]) -> None:
    process = merge.start()
    merge.wait_until_committed(process)
    (merge.accidents / "segfault").touch()
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert "crashed (SIGSEGV)" in stderr
    assert merge.files() == reference
    assert merge.outcomes() == ["error", "done"]
    [event] = merge.events("worker_crashed")
    assert event["signal"] == "SIGSEGV"


def may_stall_once(merge: Supervised) -> Path:
    """Return a file from whose creation on the first worker can stall; no later one can."""
    stalls = merge.folder / "stalls"
    merge.code = ONE_STALL.format(stalls=str(stalls))
    return stalls


def tasks(pid: int) -> list[Path]:
    return [*Path(f"/proc/{pid}/task").iterdir()]


def thread_state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "ended"


def test_stopped_and_forgotten(merge: Supervised, reference: dict[str, bytes]) -> None:
    stalls = may_stall_once(merge)
    process = merge.start("--stall-timeout", STALL_SECONDS)
    worker = merge.wait_until_committed(process)
    os.kill(worker, signal.SIGSTOP)
    wait_until(lambda: {thread_state(task) for task in tasks(worker)} == {"T"}, process)
    stalls.touch()
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert "is stopped by a signal" in stderr
    assert merge.files() == reference
    assert merge.outcomes() == ["killed", "done"]
    [event] = merge.events("worker_stalled")
    assert event["seconds"] > float(STALL_SECONDS)


def test_a_worker_that_computes_for_ever(merge: Supervised, reference: dict[str, bytes]) -> None:
    hangs, stalls = merge.accidents / "hang", may_stall_once(merge)
    hangs.touch()
    process = merge.start("--stall-timeout", STALL_SECONDS)
    wait_until(lambda: not hangs.exists(), process)
    stalls.touch()
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert "made no progress" in stderr
    assert merge.files() == reference


def test_five_times_without_progress_is_enough(
    merge: Supervised, reference: dict[str, bytes]
) -> None:
    (merge.accidents / "segfaults").touch()
    process = merge.start("--json")
    stdout, stderr = merge.end(process)
    assert process.returncode == 75
    assert merge.outcomes() == ["error"] * 6
    assert stderr.splitlines()[-1].startswith("resumerge resume merged-")
    last = json.loads(stdout.splitlines()[-1])
    assert (last["kind"], last["reason"]) == ("error", "crash")
    assert last["resume"] == stderr.splitlines()[-1]
    (merge.accidents / "segfaults").unlink()
    merge.resume()
    assert merge.files() == reference


@pytest.mark.parametrize("who", ["numpy", "torch"])
def test_memory_that_is_refused_is_no_bug(
    merge: Supervised, reference: dict[str, bytes], who: str
) -> None:
    process = merge.start()
    merge.wait_until_committed(process)
    (merge.accidents / f"{who} asks too much").touch()
    _, stderr = merge.end(process)
    assert process.returncode == 75, stderr
    assert "A memory allocation failed" in stderr
    assert stderr.splitlines()[-1].startswith("resumerge resume merged-")
    assert merge.outcomes() == ["oom"]
    merge.resume()
    assert merge.files() == reference


def test_killed_before_there_is_a_run(merge: Supervised, reference: dict[str, bytes]) -> None:
    process = merge.start()
    found = wait_until(lambda: psutil.Process(process.pid).children(), process)
    os.kill(found[0].pid, signal.SIGKILL)
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert merge.files() == reference


def test_starting_over_is_not_done_twice(merge: Supervised, reference: dict[str, bytes]) -> None:
    process = merge.start()
    merge.wait_until_committed(process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    [given_up] = merge.state.glob("merged-*")
    process = merge.start("--restart")
    wait_until(lambda: not given_up.exists() and merge.rows("SELECT 1 FROM attempts"), process)
    runs = list(merge.state.glob("merged-*"))
    os.kill(merge.wait_until_committed(process), signal.SIGKILL)
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert merge.files() == reference
    first, *others = merge.outcomes()  # the kernel may have ended another process of the machine
    assert first in ("killed", "oom") and others == ["done"]
    assert list(merge.state.glob("merged-*")) == runs


@pytest.mark.cold_start
def test_the_supervisor_is_small(merge: Supervised) -> None:
    """The worker has torch, which the method imports; the supervisor has not."""
    hold = merge.folder / "hold"
    hold.write_text("20")  # of 52, twice: after two batches
    merge.environment.update(slow_average.VARIABLES)
    merge.environment |= {"SLOW_SECONDS": "0.16", "SLOW_HOLD": str(hold)}
    (merge.folder / "recipe.yaml").write_text(slow_average.RECIPE)
    process = merge.start()
    os.kill(merge.wait_until_committed(process), signal.SIGKILL)
    wait_until(lambda: len(merge.outcomes()) == 2, process)
    own = psutil.Process(process.pid).memory_info()
    print(f"the supervisor has {own.rss / 1e6:.0f} MB, {(own.rss - own.shared) / 1e6:.0f} its own")
    assert own.rss - own.shared < 40 * MB, "without pages of libraries: these differ by machine"
    libraries = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libtorch" not in libraries
    process.kill()
    process.communicate()
