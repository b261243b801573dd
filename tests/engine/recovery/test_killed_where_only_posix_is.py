"""Promise: where a system has nothing beyond POSIX, a merge is killed and resumed as on Linux."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
from pathlib import Path

import posix_only
import pytest
from command_line import COMMITTING, WORDS, calm_merge, committed, hashes, start
from killing import kill_until_done
from ledger_rows import query
from slow_average import MEAN
from waiting import wait_until

from resumerge.ledger import LEDGER_FILE
from resumerge.ledger.run_store import RunStore

KILLS, KILLS_OF_SOAK = 3, 20
AVAILABLE = 1_000_000
"""The bytes that others leave: less than any block needs."""


@pytest.fixture(scope="module")
def calm(many_blocks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a working folder with the output of a merge that used all that Linux has."""
    return calm_merge(tmp_path_factory.mktemp("merge"), many_blocks, MEAN)


@pytest.fixture
def folder(calm: Path) -> Path:
    for name in ("merged", "ledgers", "noted.txt", "memory.txt"):
        path = calm / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return calm


def start_posix_only(words: list[str], cwd: Path, **environment: str) -> subprocess.Popen[str]:
    return start(words, cwd, posix_only.PROGRAM, posix_only.environment(cwd) | environment)


def has_measured(state_dir: Path, available: int) -> bool:
    """Return whether the only run has lowered its limit because so many bytes are available."""
    [run] = RunStore(state_dir).runs()
    sql = "SELECT data FROM events WHERE kind = 'batch_lowered'"
    lowered = [json.loads(row["data"]) for row in query(run / LEDGER_FILE, sql)]
    return any(event["available"] == available for event in lowered)


def test_killed_at_random_times(folder: Path, soak: bool) -> None:
    expected = hashes(folder / "calm" / "merged")
    kills = 0
    for seed in itertools.count():
        if kills >= (KILLS_OF_SOAK if soak else KILLS):
            break
        print(f"seed {seed}")
        kills += kill_until_done(folder, expected, random.Random(seed), start_posix_only)
        for name in ("merged", "ledgers"):
            shutil.rmtree(folder / name)
    assert posix_only.noted(folder) == []


def test_what_does_not_ask_at_the_seam_is_noticed(folder: Path) -> None:
    """The other tests prove nothing unless calls that only Linux has are noticed."""
    process = start_posix_only(WORDS, folder, RESUMERGE_POSIX_ONLY="0", SLOW_SECONDS="0")
    process.communicate()
    noted = posix_only.noted(folder)
    assert {"open /proc/meminfo", "open /proc/self/cgroup", "ctypes.dlsym prctl"} <= set(noted)


def test_memory_that_others_take_is_noticed_by_psutil(folder: Path) -> None:
    out, hold = folder / "merged", folder / "hold"
    hold.write_text(str(COMMITTING))
    process = start_posix_only([*WORDS, "--memory-wait", "1"], folder, SLOW_HOLD=str(hold))
    wait_until(lambda: committed(folder / "ledgers") > 0, process)
    (folder / "memory.txt").write_text(str(AVAILABLE))
    # The merge goes on once the memory was measured: else it could be done before.
    wait_until(lambda: has_measured(folder / "ledgers", AVAILABLE), process)
    hold.unlink()
    _, stderr = process.communicate()
    assert process.returncode == 75, stderr
    assert "Waiting for memory: other processes took" in stderr
    assert "Close other programs" in stderr
    (folder / "memory.txt").unlink()
    words = ["resume", "merged", "--state-dir", "ledgers"]
    resumed = start_posix_only(words, folder, SLOW_SECONDS="0")
    _, stderr = resumed.communicate()
    assert resumed.returncode == 0, stderr
    assert hashes(out) == hashes(folder / "calm" / "merged")
    assert posix_only.noted(folder) == []
