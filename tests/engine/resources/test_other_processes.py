"""Promise: a merge gives way when another process takes the memory, and no process is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cgroups import MB, TestCgroup, memory_cgroup
from merging_in_cgroups import Merging
from slow_average import RECIPE, VARIABLES
from waiting import wait_until

pytestmark = [pytest.mark.usefixtures("real_cgroups"), pytest.mark.cold_start]

HOG = Path(__file__).with_name("hog.py")
LIMIT = 700 * MB
HELD = 400
"""The number of blocks, of about 520, after which a merge waits until the test lets it go on."""


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


@dataclass
class Disturbed:
    """A merge in a cgroup, and a process there that has taken all memory but a few bytes.

    Both go on until they are told: a slow machine may be late for any of the events.
    """

    merge: subprocess.Popen[str]
    group: TestCgroup
    hog: subprocess.Popen[str]
    hold: Path

    def give_back(self) -> None:
        """End the process that took the memory."""
        self.hog.communicate()
        assert self.hog.returncode == 0


@contextmanager
def disturbed(merging: Merging, leave: int, *options: str) -> Iterator[Disturbed]:
    """Yield a merge during which another process takes all memory but `leave` bytes.

    The merge cannot end while the file `hold` exists.
    """
    hold = merging.recipe.with_name("hold")
    hold.write_text(str(HELD))
    with memory_cgroup(LIMIT) as group:
        hog = group.start(
            [sys.executable, str(HOG), str(leave)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert hog.stdin is not None and hog.stdout is not None
        assert hog.stdout.readline() == "ready\n"
        merge = group.start(
            merging.command("--threads", "1", *options),
            cwd=merging.models,
            stderr=subprocess.PIPE,
            env={**os.environ, "SLOW_HOLD": str(hold)},
        )
        wait_until(lambda: merging.committed() > 0, merge)
        print("now", file=hog.stdin, flush=True)
        assert hog.stdout.readline() == "taken\n"
        yield Disturbed(merge, group, hog, hold)


def events(merging: Merging, kind: str, reason: str = "") -> list[dict[str, Any]]:
    """Return the events of a kind whose reason has a text."""
    found = merging.status()["events"]
    return [event for event in found if event["kind"] == kind and reason in event["data"]["reason"]]


def test_the_uncommitted_limit_falls_before_memory_ends_and_rises_again(
    calm: Merging, large_llamas: Path, tmp_path: Path
) -> None:
    merging = Merging(large_llamas, tmp_path / "merge", RECIPE)
    with disturbed(merging, 50 * MB) as beside:
        merge = beside.merge
        taken = wait_until(lambda: events(merging, "batch_lowered", "other processes took"), merge)
        beside.give_back()
        wait_until(lambda: raised_after(merging, taken[0]["at"]), merge)
        beside.hold.unlink()
        _, errors = merge.communicate()
        assert merge.returncode == 0, errors
        assert beside.group.kills == 0
    assert merging.same_shards_as(calm)
    status = merging.status()
    assert len(status["attempts"]) == 1
    taken = events(merging, "batch_lowered", "other processes took")
    assert all(event["data"]["available"] > 0 for event in taken)


def raised_after(merging: Merging, at: str) -> bool:
    return any(event["at"] > at for event in events(merging, "batch_raised"))


def test_where_nothing_fits_the_run_stops_after_its_patience_and_can_be_resumed(
    calm: Merging, large_llamas: Path, tmp_path: Path
) -> None:
    merging = Merging(large_llamas, tmp_path / "merge", RECIPE)
    with disturbed(merging, 8 * MB, "--memory-wait", "1") as beside:
        beside.hold.unlink()
        _, errors = beside.merge.communicate()
        beside.give_back()
        assert beside.merge.returncode == 75, errors
        assert "Waiting for memory: other processes took" in errors
        assert "Close other programs" in errors
        assert errors.splitlines()[-1].startswith("resumerge resume ")
        assert beside.group.kills == 0
    kinds = [event["kind"] for event in merging.status()["events"]]
    assert {"waiting", "gave_up_waiting"} <= set(kinds)
    merging.run(None)
    assert merging.same_shards_as(calm)
    assert len(merging.status()["attempts"]) == 2
