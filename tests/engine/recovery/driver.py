"""A server that runs merges, each in a process of its own, on a disk that crashes on request.

Each job runs in a child that is forked for it; see `fork_server`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from disk import Disk
from fork_server import exit_code_of, serve
from rich.console import Console

from resumerge.engine.execute import scheduler
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.verify import verify_run
from resumerge.engine.resources import governor
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.storage import Storage
from resumerge.tensors import target
from resumerge.ui.progress.console_reporter import ConsoleReporter


def shrink(block: int, limit: int) -> None:
    """Make blocks and the uncommitted limit so small that a small merge has many batches.

    All attempts of a run have the same values: the block is part of the format. No batch ends by
    time: every attempt has the same operations, on a slow machine, too.
    """
    target.BLOCK_ELEMENTS = block
    scheduler.BATCH_SECONDS = float("inf")
    governor.LARGEST_UNCOMMITTED_LIMIT = limit
    governor.SMALLEST_UNCOMMITTED_LIMIT = limit


def work(job: dict[str, Any]) -> int:
    """Run, resume or verify in this process, and return the command line's exit code."""
    shrink(job["block"], job["uncommitted_limit"])
    disk = Disk(
        Path(job["root"]),
        Path(job["graveyard"]),
        Path(job["log"]),
        job["at"],
        job["mode"],
        job["seed"],
        frozenset(job["points"]),
        Path(job["states"]),
    )
    os.chdir(job["models"])
    options = Options(state_dir=Path(job["state"]), threads=2, **job["options"])
    session = Session(options, ConsoleReporter(Console(stderr=True, width=200)))
    disk.install()

    def merge() -> int:
        if "run" in job["command"]:
            session.run(Path(job["config"]), Path(job["out"]))
        if "resume" in job["command"]:
            session.resume(job["out"])
        if "verify" in job["command"]:
            found = verify_run(RunStore(options.state_dir).find(job["out"]), Storage())
            print(json.dumps(found.as_json()))
            return 0 if found.intact and not found.pending else 75
        return 0

    try:
        return exit_code_of(merge)
    finally:
        disk.report()


if __name__ == "__main__":
    serve(work)
