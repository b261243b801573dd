"""Promise: a merge gives way when another process takes the memory, and no process is killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cgroups import MB, TestCgroup, memory_cgroup
from merging_in_cgroups import Merging
from slow_average import RECIPE, VARIABLES
from waiting import wait_until

pytestmark = [pytest.mark.usefixtures("real_cgroups"), pytest.mark.cold_start]

HOG = Path(__file__).with_name("hog.py")
LIMIT = 700 * MB


@pytest.fixture(scope="module", autouse=True)
def slow_enough() -> Iterator[None]:
    """Make merges so slow that another process can come and go meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in VARIABLES.items():
            patched.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def calm(large_llamas: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Merging]:
    """Yield the merge that no other process disturbs."""
    merging = Merging(large_llamas, tmp_path_factory.mktemp("calm") / "merge", RECIPE)
    merging.run(None)
    yield merging
    shutil.rmtree(merging.out)


@contextmanager
def disturbed(
    merging: Merging, leave: int, seconds: float, *options: str
) -> Iterator[tuple[subprocess.Popen[str], TestCgroup]]:
    """Yield a merge during which another process takes all memory but `leave` bytes."""
    with memory_cgroup(LIMIT) as group:
        hog = group.start(
            [sys.executable, str(HOG), str(leave), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert hog.stdout is not None and hog.stdout.readline() == "ready\n"
        merge = group.start(
            merging.command("--threads", "1", *options), cwd=merging.models, stderr=subprocess.PIPE
        )
        wait_until(lambda: merging.committed() > 0, merge)
        hog.communicate("now\n")
        assert hog.returncode == 0
        yield merge, group


def test_the_uncommitted_limit_falls_before_memory_ends_and_rises_again(
    calm: Merging, large_llamas: Path, tmp_path: Path
) -> None:
    merging = Merging(large_llamas, tmp_path / "merge", RECIPE)
    with disturbed(merging, 50 * MB, 3.0) as (merge, group):
        _, errors = merge.communicate()
        assert merge.returncode == 0, errors
        assert group.kills == 0
    assert merging.same_shards_as(calm)
    status = merging.status()
    assert len(status["attempts"]) == 1
    lowered = [event for event in status["events"] if event["kind"] == "batch_lowered"]
    raised = [event for event in status["events"] if event["kind"] == "batch_raised"]
    taken = [event for event in lowered if "other processes took" in event["data"]["reason"]]
    assert taken, status["events"]
    assert all(event["data"]["available"] > 0 for event in taken)
    assert raised, status["events"]
    assert raised[-1]["at"] > taken[0]["at"]


def test_where_nothing_fits_the_run_stops_after_its_patience_and_can_be_resumed(
    calm: Merging, large_llamas: Path, tmp_path: Path
) -> None:
    merging = Merging(large_llamas, tmp_path / "merge", RECIPE)
    with disturbed(merging, 8 * MB, 8.0, "--memory-wait", "1") as (merge, group):
        _, errors = merge.communicate()
        assert merge.returncode == 75, errors
        assert "Waiting for memory: other processes took" in errors
        assert "Close other programs" in errors
        assert errors.splitlines()[-1].startswith("resumerge resume ")
        assert group.kills == 0
    kinds = [event["kind"] for event in merging.status()["events"]]
    assert {"waiting", "gave_up_waiting"} <= set(kinds)
    merging.run(None)
    assert merging.same_shards_as(calm)
    assert len(merging.status()["attempts"]) == 2
