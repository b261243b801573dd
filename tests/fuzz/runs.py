"""Runs that exist before a file is changed: a finished one, and one that stopped in the middle."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path

from fuzz.command_line import call
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import Resumable
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.storage import Storage

HALF, DONE = "half", "done"
"""The outputs of the unfinished and of the finished run."""

SHARD_BYTES = 200
"""The size of a shard, of which a tiny model has two or more."""


class _FullDisk(Storage):
    """A disk without room for the name of the second shard."""

    def rename(self, source: Path, target: Path) -> None:
        if target.name.startswith("model-00002"):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().rename(source, target)


def make_finished(recipe: str, *options: str) -> None:
    """Make a finished run."""
    size = ["--shard-size", f"{SHARD_BYTES}B"]
    words = ["run", recipe, DONE, "--no-supervise", "--offline"]
    if (ending := call([*words, *size, *options])).code != 0:
        raise AssertionError(ending.said)


def make_unfinished(recipe: str, mirror: str | None = None) -> None:
    """Make a run with a sealed shard, an open one, and pending units."""
    options = Options(offline=True, shard_size=SHARD_BYTES, mirror=mirror)
    try:
        Session(options, storage=_FullDisk()).run(Path(recipe), Path(HALF))
    except Resumable:
        pass
    else:
        raise AssertionError("the run came to its end")
    ledger = RunStore().find(HALF) / "ledger.db"
    with closing(sqlite3.connect(ledger)) as db, db:
        db.execute(
            "UPDATE units SET state = 'pending', committed_blocks = 0, block_hashes = NULL, "
            "input_hashes = NULL, checksum = NULL, attempt = NULL, batch = NULL WHERE number = "
            "(SELECT max(number) FROM units WHERE shard IN "
            "(SELECT number FROM shards WHERE state = 'open'))"
        )
