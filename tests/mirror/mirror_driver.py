"""Runs merges with a mirror, each in a process of its own, on a mirror that does what it is told.

A job that has an ``env`` has its mirror on the Hub, or in the bucket, that the variables lead to.

Jobs come to a server that forks a child for each; see `fork_server`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from far_bucket import FarBucket
from far_hub import FarHub
from far_storage import FarStorage
from fork_server import exit_code_of, serve
from rich.console import Console

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.resources import governor
from resumerge.mirror import Replicator
from resumerge.mirror import replicator as mirror_module
from resumerge.mirror.stores import folder as folder_module
from resumerge.options import Options
from resumerge.retry import Backoff
from resumerge.tensors import target
from resumerge.ui.progress.console_reporter import ConsoleReporter

BUCKETS = {"AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST", "AZURE_STORAGE_CONNECTION_STRING"}
"""Variables of which one leads to the server of a bucket."""


def shrink() -> None:
    """Make blocks and batches small, so that a small merge has many, and pauses short."""
    target.BLOCK_ELEMENTS = 512
    governor.LARGEST_UNCOMMITTED_LIMIT = governor.SMALLEST_UNCOMMITTED_LIMIT = 8192
    mirror_module.BACKOFF = Backoff(first=0.01, longest=0.1)
    folder_module.SETTLE_SECONDS = 0.1


def wait_only_after_failures() -> None:
    """Let no time before a failure that was told count as time in which the mirror fails.

    A slow machine may take longer for one operation than a test lets a mirror fail.
    """
    note, check = Replicator._note_failure, Replicator._check_stall

    def note_failure(replicator: Replicator, error: OSError) -> bool:
        again = note(replicator, error)
        error.is_told = True  # type: ignore[attr-defined]
        return again

    def check_stall(replicator: Replicator, waited: float, what: str) -> None:
        if getattr(replicator._failure, "is_told", False):
            check(replicator, waited, what)

    Replicator._note_failure = note_failure  # type: ignore[method-assign]
    Replicator._check_stall = check_stall  # type: ignore[method-assign]


def work(job: dict[str, Any]) -> int:
    """Run or resume in this process, and return the exit code of the command line."""
    shrink()
    wait_only_after_failures()
    if "lease" in job:
        os.environ["RESUMERGE_LEASE_SECONDS"] = job["lease"]
    os.environ.update(job.get("env", {}))  # before anything reads it
    far: FarBucket | FarHub | FarStorage
    if job.get("env", {}).keys() & BUCKETS:
        far = FarBucket(**job["far"])
    elif "env" in job:
        far = FarHub(**job["far"])
    else:
        far = FarStorage(Path(job["mirror"]), **{**job["far"], "lacks": tuple(job["lacks"])})
    far.install()
    os.chdir(job["models"])
    options = Options(state_dir=Path(job["state"]), threads=2, **job["options"])
    session = Session(options, ConsoleReporter(Console(stderr=True, width=200)))

    def merge() -> int:
        if job["command"] == "run":
            session.run(Path(job["config"]), Path(job["out"]))
        else:
            session.resume(job["out"])
        return 0

    try:
        return exit_code_of(merge)
    finally:
        told = {"kinds": far.kinds, "failed": far.failed, "checks": far.checks}
        Path(job["log"]).write_text(json.dumps(told))


if __name__ == "__main__":
    serve(work)
