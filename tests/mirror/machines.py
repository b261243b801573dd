"""Machines that have nothing in common but the mirror, and the copies of the models they merge."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from ledger_rows import query
from waiting import HANGS_SECONDS, wait_until

from resumerge.ledger.run_store import RunStore
from resumerge.mirror.state import MirrorState, read_state
from resumerge.mirror.stores.registry import open_store

ROOT = Path(__file__).parents[2]
SLOWLY = ROOT / "tests" / "supervisor" / "slowly.py"
BIN = Path(sys.executable).parent
LEASE_SECONDS = 1.0
WATCHES = {"RESUMERGE_LEASE_SECONDS": str(HANGS_SECONDS)}
"""For a machine that finds another one alive, however long that one stands still."""

SHARD_SIZE = "8kB"

RECIPE = "merge_method: slowly\nmodels: [{model: math}, {model: code}]\n"
SLOW = {"SLOWLY_SECONDS": "0.25"}
"""For each of 39 blocks in 8 shards: a batch, of a second, is less than a shard."""

NAMED = """
import ctypes, socket, sys
CLONE_NEWUTS = 0x04000000
assert ctypes.CDLL(None).unshare(CLONE_NEWUTS) == 0
socket.sethostname(sys.argv.pop(1))
"""
"""What a process does to be on a machine with a name of its own, its first argument."""

MAIN = """
from resumerge.__main__ import main
main()
"""

EXCLUDABLE = """
import fcntl
from resumerge.mirror.lease import Lease
from resumerge.mirror.replicator import Replicator
def excludable(operation):
    def whole(*given, **more):
        with open({lock!r}, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            return operation(*given, **more)
    return whole
Lease._renew, Replicator._do = map(excludable, (Lease._renew, Replicator._do))
"""
"""Code for `before`: each operation on a mirror is done under a shared lock of a file."""

HELD = 20
"""Blocks after which a process waits: so many that a shard is sealed, and too few for all."""


@dataclass
class Machine:
    """A machine with a home, a cache, a working folder and a name of its own.

    Args:
        folder: the folder of everything that the machine has.
        models: the folder of the models, which are copied to its working folder.
        environment: environment variables to add or replace.
        before: code that each process runs before the command.
    """

    folder: Path
    models: Path | None = None
    recipe: str = RECIPE
    environment: Mapping[str, str] = field(default_factory=dict)
    before: str = ""

    def __post_init__(self) -> None:
        self.work, self.state = self.folder / "work", self.folder / "state"
        for path in (self.work, self.folder / "home"):
            path.mkdir(parents=True)
        (self.folder / "accidents").mkdir()
        if self.models is not None:
            for model in self.models.iterdir():
                shutil.copytree(model, self.work / model.name, copy_function=shutil.copyfile)
        (self.work / "recipe.yaml").write_text(self.recipe)
        self.out = self.work / "merged"

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "RESUMERGE"))}
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "HF_HOME": str(self.folder / "hf"),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "200",
            "RESUMERGE_STATE_DIR": str(self.state),
            "RESUMERGE_LEASE_SECONDS": str(LEASE_SECONDS),
            "RESUMERGE_METHODS": str(SLOWLY),
            "SLOWLY_ACCIDENTS": str(self.folder / "accidents"),
            "SLOWLY_SECONDS": "0",
            **self.environment,
        }

    def start(self, *words: object, **env: str) -> subprocess.Popen[str]:
        """Start a command of resumerge in the working folder."""
        program = ["-c", self.before + MAIN]
        if can_be_named():
            program = ["-c", NAMED + self.before + MAIN, f"machine-{self.folder.name}"]
        return subprocess.Popen(
            [sys.executable, *program, *map(str, words)],
            cwd=self.work,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: object, expect: int = 0, **env: str) -> tuple[str, str]:
        """Run a command to its end, and return its stdout and stderr."""
        process = self.start(*words, **env)
        out, err = process.communicate()
        assert process.returncode == expect, (process.returncode, err)
        return out, err

    def call_line(self, line: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a printed line in a shell, in the machine's folder."""
        return subprocess.run(
            line, shell=True, cwd=self.folder, env={**self.env, **env}, capture_output=True,
            text=True,
        )  # fmt: skip

    def hold(self, blocks: int) -> None:
        """Let each process compute so many blocks, and then wait until `let_go`."""
        (self.folder / "accidents" / "hold").write_text(str(blocks))

    def let_go(self) -> None:
        (self.folder / "accidents" / "hold").unlink()

    def begin(self, mirror: str | Path, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start `resumerge run recipe.yaml merged --mirror`."""
        shards = ["--shard-size", SHARD_SIZE] if "--shard-size" not in words else []
        options = ["--mirror", str(mirror), "--threads", "1", *shards, *words]
        return self.start("run", "recipe.yaml", "merged", *options, **env)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return rows of the ledger of the newest run; none if there is no run."""
        runs = RunStore(self.state).runs()
        if not runs:
            return []
        return query(runs[-1] / "ledger.db", sql)

    def events(self) -> list[str]:
        """Return the kinds of all events, in order."""
        return [row["kind"] for row in self.rows("SELECT kind FROM events ORDER BY id")]

    def wipe(self) -> None:
        """Delete everything that the machine has."""
        shutil.rmtree(self.folder)


def can_be_named() -> bool:
    """Return whether a process can have a host name of its own on this system."""
    global _named
    if _named is None:
        words = ["unshare", "--uts", "hostname", "probe"]
        _named = (
            shutil.which("unshare") is not None
            and not subprocess.run(words, capture_output=True).returncode
        )
    return _named


_named: bool | None = None


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and all processes that it started at once, as a power cut does."""
    with suppress(psutil.NoSuchProcess):
        family = [psutil.Process(process.pid)]
        family += family[0].children(recursive=True)
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGKILL)
    process.communicate()


@dataclass(frozen=True)
class InMirror:
    """The content of a mirror of an unfinished run.

    Args:
        sealed: the names of the mirrored shards.
        units: the attempt and batch that committed each unit of these shards, by number.
    """

    sealed: frozenset[str]
    units: Mapping[int, tuple[int, int]]


def held(mirror: str | Path) -> MirrorState:
    """Return the state of a mirror, as a machine without the run reads it."""
    with tempfile.TemporaryDirectory() as folder:
        return read_state(open_store(str(mirror)), Path(folder) / "ledger.db")


def in_mirror(mirror: str | Path) -> InMirror:
    """Return the shards of the newest snapshot, and their units."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        if not read_state(open_store(str(mirror)), path).snapshot:
            return InMirror(frozenset(), {})
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(
                "SELECT units.number, attempt, batch, shards.name FROM units"
                " JOIN shards ON shards.number = units.shard"
                " WHERE shards.name IN (SELECT name FROM mirrored)"
            ).fetchall()
    return InMirror(frozenset(row[3] for row in rows), {row[0]: (row[1], row[2]) for row in rows})


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file of a model, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.relative_to(folder).as_posix().startswith(".resumerge/")
    }


def go_on_with(first: Machine, second: Machine, url: str) -> None:
    """Kill one machine in the middle, and let another, refused before, finish its run."""
    first.hold(HELD)  # alive until it is killed
    process = first.begin(url, "--mirror-then-delete", **SLOW)
    wait_until(lambda: in_mirror(url).sealed, process)
    _, err = second.call("resume", url, expect=2, **WATCHES)
    assert "is working on this mirror" in err
    assert not second.out.exists()
    kill(process)
    promised = in_mirror(url).units
    second.call("resume", url, "--bring-back")
    rows = second.rows("SELECT number, attempt, batch FROM units")
    found = {row["number"]: (row["attempt"], row["batch"]) for row in rows}
    assert promised.items() <= found.items(), "computed again"


def resume_line(stderr: str) -> str:
    """Return the last line, which is the command that resumes the run."""
    line = stderr.strip().splitlines()[-1]
    assert shlex.split(line)[0] == "resumerge", stderr
    return line


def skip_without_names() -> None:
    if not can_be_named():
        pytest.skip("machines cannot have names of their own here")
