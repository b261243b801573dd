"""Runs merges, each in a process of its own, on a disk that crashes where it is told to.

One server has torch imported and forks a child for every job, before it has any thread; jobs come
as JSON lines on stdin, and how each ended goes as JSON lines to stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import sqlite_utils
from disk import Disk
from rich.console import Console

from resumerge.engine import engine, governor
from resumerge.engine.options import Options
from resumerge.engine.session import Session
from resumerge.engine.verify import verify_run
from resumerge.errors import ResumergeError
from resumerge.ledger.home import Home
from resumerge.planning import estimate, fingerprint, model
from resumerge.storage import Storage
from resumerge.ui.progress import ConsoleReporter

HANGS_SECONDS = 60


def shrink(block: int, batch: int) -> None:
    """Blocks of that many elements and batches of that many bytes, so that a small merge has many.

    The same for every attempt of a run: the block is part of the format.
    """
    for module in (model, fingerprint, estimate):
        module.BLOCK = block
    engine.BLOCK = block
    governor.LARGEST_BATCH = batch
    governor.SMALLEST_BATCH = batch


def work(job: dict[str, Any]) -> int:
    """Run, resume, verify in this process; the exit code of the command line."""
    shrink(job["block"], job["batch"])
    disk = Disk(
        Path(job["root"]),
        Path(job["graveyard"]),
        Path(job["log"]),
        job["at"],
        job["mode"],
        job["seed"],
    )
    os.chdir(job["models"])
    options = Options(state_dir=Path(job["state"]), threads=2, **job["options"])
    session = Session(options, ConsoleReporter(Console(stderr=True, width=200)))
    disk.install()
    try:
        if "run" in job["command"]:
            session.run(Path(job["config"]), Path(job["out"]))
        if "resume" in job["command"]:
            session.resume(job["out"])
        if "verify" in job["command"]:
            found = verify_run(Home(options.state_dir).find(job["out"]), Storage())
            print(json.dumps(found.as_json()))
            return 0 if found.intact and not found.pending else 75
        return 0
    except ResumergeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        disk.report()


def child(job: dict[str, Any]) -> None:
    code = 1
    try:
        fd = os.open(job["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        code = work(job)
        sys.stderr.flush()
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """The child's exit code, or less a signal; a child that hangs is killed and reported as 1."""
    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 1


WARM = (
    *("torch", "numpy.random", "rich._emoji_codes", "resumerge.sources.local"),
    *("resumerge.engine.allocator", "resumerge.engine.arithmetic", "resumerge.engine.commit"),
    *("resumerge.engine.evaluate", "resumerge.engine.recovery"),
)
"""What an attempt imports on its way; imported before the fork, it is there at once."""


def serve() -> None:
    for name in WARM:
        importlib.import_module(name)
    sqlite_utils.Database(memory=True).close()  # looks for its plugins once
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(job)
        print(json.dumps({"code": wait(pid)}), flush=True)


if __name__ == "__main__":
    serve()
