"""Promise: small limits, a system without /proc, a state folder that disappears: the merge is done,
or the message names what is in its way.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import NOTES_SIGNALS
from merging import shards_of
from waiting import wait_until

HELD = (
    NOTES_SIGNALS
    + """
import os, time
from resumerge.storage import Storage
whole = Storage.write
def write(self, fd, data, offset):
    while offset > 10_000 and not (handled or os.path.exists({go!r})):
        time.sleep(0.02)
    whole(self, fd, data, offset)
Storage.write = write
"""
)
"""Nothing more is written until there is a file `go`, or the process has handled a signal."""


def start(
    *words: object, cwd: Path, before: str = "", limit: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    program = f"{before}\nfrom resumerge.__main__ import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate()
    return process.returncode, stderr


@pytest.mark.parametrize("files", [12, 16, 32])
def test_few_open_files(files: int, place: Path, tmp_path: Path, soak: bool) -> None:
    if files == 16 and not soak:
        pytest.skip("too few and hardly enough are enough for every day: the others with --soak")
    words = ("run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    code, stderr = ended(start(*words, cwd=place, limit=limit))
    assert code in (0, 75)
    if code == 75:
        assert f"this process may open {files}" in stderr
        assert "ulimit -n" in stderr
        assert ended(start(*words, cwd=place))[0] == 0
    assert shards_of(tmp_path / "out") == shards_of(place / "done")


def test_the_limit_of_open_files_is_raised(place: Path, tmp_path: Path) -> None:
    """The program raises a low default limit of open files as far as the system allows."""
    words = ("run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 4096))

    code, stderr = ended(start(*words, cwd=place, limit=limit))
    assert code == 0, stderr


@pytest.mark.parametrize("megabytes", [60, 150, 300, 340, 380])
def test_a_small_address_space(megabytes: int, place: Path, tmp_path: Path, soak: bool) -> None:
    if megabytes > 300 and not soak:
        pytest.skip("too little and hardly enough are enough for every day: others with --soak")
    words = ("run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    code, stderr = ended(start(*words, cwd=place, limit=limit))
    assert code == (2 if megabytes < 256 else 0), stderr
    if code:
        assert "ulimit -v" in stderr
        assert "Traceback" not in stderr


@pytest.mark.parametrize(
    "error",
    [
        'RuntimeError("can\'t start new thread")',
        'ImportError("libx.so: failed to map segment from shared object")',
        'OSError(12, "Cannot allocate memory")',
        "MemoryError()",
    ],
)
def test_memory_that_runs_out_anywhere_is_no_bug(error: str, place: Path, tmp_path: Path) -> None:
    before = f"""
from resumerge.engine.lifecycle.session import Session
def run(self, config, out):
    raise {error}
Session.run = run
"""
    words = ("run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state")
    code, stderr = ended(start(*words, cwd=place, before=before))
    assert code == 75
    assert "A memory allocation failed" in stderr
    assert "Traceback" not in stderr


def test_without_proc(place: Path, tmp_path: Path) -> None:
    def run(command: str) -> int:
        hide = f"mount -t tmpfs none /proc || exit 99; exec {command}"
        return subprocess.run(["unshare", "-m", "sh", "-c", hide], cwd=place).returncode

    if run("true"):
        pytest.skip("needs the right to mount")
    resumerge = f"{sys.executable} -m resumerge"
    for number, option in enumerate(("", "--no-supervise")):
        out, state = tmp_path / f"out{number}", tmp_path / "state"
        assert run(f"{resumerge} plan linear.yaml") == 0
        assert run(f"{resumerge} run linear.yaml {out} --state-dir {state} {option}") == 0
        assert run(f"{resumerge} status {out} --state-dir {state}") == 0
        assert shards_of(out) == shards_of(place / "done")


@pytest.mark.parametrize("end", ["itself", "SIGTERM"])
def test_a_state_folder_that_is_deleted_meanwhile(end: str, place: Path, tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    words = ("run", "linear.yaml", out, "--state-dir", state)
    go = tmp_path / "go"
    process = start(*words, cwd=place, before=HELD.format(go=str(go)))
    wait_until(lambda: list(out.glob("*.partial")), process)
    shutil.rmtree(state)
    if end == "SIGTERM":
        process.terminate()
    else:
        go.touch()
    code, stderr = ended(process)
    assert code == (75 if end == "itself" else 143), stderr
    assert "The ledger of this run was deleted" in stderr
    command = stderr.splitlines()[-1]
    assert command.startswith(f"resumerge run linear.yaml {out}")
    shutil.rmtree(out)
    assert ended(start(*command.split()[1:], cwd=tmp_path))[0] == 0
    assert shards_of(out) == shards_of(place / "done")
