"""Promise: the suites' temporary files are on a disk in memory if possible, and none is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from waiting import wait_until

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "disk_in_memory.sh"


def run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = [str(SCRIPT), "sh", "-c", command]
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    return subprocess.run(words, capture_output=True, text=True, env={**env, **variables})


def test_files_are_on_it_and_nobody_else_sees_them() -> None:
    done = run(
        'printf "%s\\n" "${TMPDIR:-none}"; touch "${TMPDIR:-/tmp}/seen.by.itself"; ls "$TMPDIR"'
    )
    place = done.stdout.splitlines()[0]
    if place == "none":
        assert "are on the disk" in done.stderr, "it says why"
        return
    assert "seen.by.itself" in done.stdout
    assert not (Path(place) / "seen.by.itself").exists(), "it is mounted for the command alone"
    # Another command may begin just now: its file, too, is there for a moment only.
    wait_until(lambda: not [*Path("/dev/shm").glob("resumerge-tests.*")])


def test_the_command_is_run_as_it_is() -> None:
    assert run("exit 7").returncode == 7
    assert run('printf "%s" "$WORD"', WORD="two  words").stdout == "two  words"


def test_where_there_is_no_mount_the_disk_is_taken(tmp_path: Path) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    done = run('printf "%s" "${TMPDIR:-none}"', PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (0, "none")
    assert "the tests' files are on the disk" in done.stderr
