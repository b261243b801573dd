"""Promise: a run that has begun waits for memory, and stops resumably if no memory becomes free."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cgroups import MB, TestCgroup, memory_cgroup
from supervised import Supervised, wait_until_dead
from waiting import wait_until

pytestmark = pytest.mark.cold_start

PLENTY, LITTLE = 4000 * MB, 220 * MB
"""Of memory: with the little a merge can be planned, and no block of it computed."""


@pytest.fixture
def group() -> Iterator[TestCgroup]:
    try:
        with memory_cgroup(PLENTY) as group:
            yield group
    except PermissionError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def with_torch(merge: Supervised) -> None:
    """Make the method compute with torch, which takes the memory."""
    merge.environment["SLOWLY_WITH_TORCH"] = "1"


@pytest.fixture
def stopped(merge: Supervised) -> Supervised:
    """Start a merge, and stop it in the middle."""
    process = merge.start()
    merge.wait_until_committed(process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    return merge


def test_a_killed_worker_is_resumed_when_there_is_memory_again(
    merge: Supervised, reference: dict[str, bytes], group: TestCgroup
) -> None:
    process = group.start(merge.command, **merge.options)
    worker = merge.wait_until_committed(process)
    process.send_signal(signal.SIGSTOP)  # no other worker begins before the memory is away
    group.limit(700 * MB)
    (merge.accidents / "hunger").touch()
    wait_until_dead(worker)
    group.limit(LITTLE)
    process.send_signal(signal.SIGCONT)
    said = list(_until("Waiting for memory: the cgroup", process))
    group.limit(PLENTY)
    _, stderr = merge.end(process)
    assert process.returncode == 0, (said, stderr)
    assert merge.files() == reference


def test_half_of_a_small_budget_is_still_enough_for_one_thread(
    merge: Supervised, reference: dict[str, bytes], group: TestCgroup
) -> None:
    group.limit(700 * MB)
    merge.environment["SLOWLY_SECONDS"] = "0"
    (merge.accidents / "hold").write_text("0")
    process = group.start([*merge.command, "--memory", "400MB"], **merge.options)
    wait_until((merge.accidents / "begun").exists, process)
    looked = _sleeps(process.pid)  # before each sleep, the supervisor measures the worker
    wait_until(lambda: _sleeps(process.pid) > looked + 3, process)
    (merge.accidents / "hunger").touch()
    merge.go_on()
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert merge.outcomes() == ["oom", "done"]
    assert merge.files() == reference
    peaks = [row["peak_rss"] for row in merge.rows("SELECT peak_rss FROM attempts")]
    assert min(peaks) > 100 * MB, peaks  # of the killed one, which committed nothing, too


def test_a_resumed_run_without_memory_can_be_resumed_again(
    stopped: Supervised, reference: dict[str, bytes], group: TestCgroup
) -> None:
    group.limit(LITTLE)
    command = [*stopped.command[:3], "resume", str(stopped.out), "--state-dir", str(stopped.state)]
    process = group.start([*command, "--memory-wait", "1", "--json"], **stopped.options)
    stdout, stderr = process.communicate()
    assert process.returncode == 75, stderr
    last = json.loads(stdout.splitlines()[-1])
    assert (last["kind"], last["reason"], last["exit_code"]) == ("error", "memory", 75)
    assert "the cgroup resumerge-test" in last["message"]
    assert stderr.splitlines()[-1] == last["resume"]
    assert last["resume"].startswith("resumerge resume merged-")
    assert len(stopped.outcomes()) == 1
    stopped.resume()
    assert stopped.files() == reference


def test_a_budget_that_is_asked_too_small_is_not_waited_for(stopped: Supervised) -> None:
    process = stopped.start("--memory", "100MB")
    _, stderr = process.communicate()
    assert process.returncode == 2, stderr
    assert "found:    --memory 100MB" in stderr
    assert "raise --memory to" in stderr


def test_a_limit_that_is_too_small_is_not_laid_to_the_budget(
    merge: Supervised, group: TestCgroup
) -> None:
    group.limit(LITTLE)
    process = group.start([*merge.command, "--memory", "400MB"], **merge.options)
    _, stderr = process.communicate()
    assert process.returncode == 2, stderr
    assert "the cgroup resumerge-test" in stderr
    assert "raise its limit" in stderr
    assert "--memory" not in stderr
    assert not merge.out.exists()


def _sleeps(pid: int) -> int:
    """Return how often a process has waited for something."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def _until(said: str, process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the lines of a process's stderr, up to the first line with a text."""
    assert process.stderr is not None
    for line in process.stderr:
        yield line
        if said in line:
            return
    raise AssertionError(f"it ended with {process.wait()}")
