"""Runs merges with a mirror, each in a process of its own, on a mirror that does what it is told.

A job that has an ``env`` has its mirror on the Hub that the variables lead to.

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
from far_hub import FarHub
from far_storage import FarStorage
from rich.console import Console

from resumerge.engine import engine, governor
from resumerge.engine.options import Options
from resumerge.engine.session import Session
from resumerge.errors import ResumergeError
from resumerge.mirror import folder as folder_module
from resumerge.mirror import mirror as mirror_module
from resumerge.planning import estimate, fingerprint, model
from resumerge.ui.progress import ConsoleReporter

HANGS_SECONDS = 60
LEASE_SECONDS = "1"
"""Who was killed while it wrote its lease is watched for so long."""


def shrink() -> None:
    """Small blocks and batches, so that a small merge has many; short pauses between tries."""
    for module in (model, fingerprint, estimate):
        module.BLOCK = 512
    engine.BLOCK = 512
    governor.LARGEST_BATCH = governor.SMALLEST_BATCH = 8192
    mirror_module.FIRST_PAUSE, mirror_module.LONGEST_PAUSE = 0.01, 0.1
    folder_module.SETTLE_SECONDS = 0.1


def work(job: dict[str, Any]) -> int:
    """Run or resume in this process; the exit code of the command line."""
    shrink()
    os.environ.update(job.get("env", {}))  # before anything reads it
    far: FarHub | FarStorage
    if "env" in job:
        far = FarHub(**job["far"])
    else:
        far = FarStorage(Path(job["mirror"]), **{**job["far"], "lacks": tuple(job["lacks"])})
    far.install()
    os.chdir(job["models"])
    options = Options(state_dir=Path(job["state"]), threads=2, **job["options"])
    session = Session(options, ConsoleReporter(Console(stderr=True, width=200)))
    try:
        if job["command"] == "run":
            session.run(Path(job["config"]), Path(job["out"]))
        else:
            session.resume(job["out"])
        return 0
    except ResumergeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        told = {"kinds": far.kinds, "failed": far.failed, "checks": far.checks}
        Path(job["log"]).write_text(json.dumps(told))


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
    os.environ["RESUMERGE_LEASE_SECONDS"] = LEASE_SECONDS
    for name in WARM:
        importlib.import_module(name)
    sqlite_utils.Database(memory=True).close()
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(job)
        print(json.dumps({"code": wait(pid)}), flush=True)


if __name__ == "__main__":
    serve()
