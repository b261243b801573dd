"""A merge in a process of its own that is killed as it seals a shard."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.storage import Storage

SEALED = 2
"""The number of shards that are sealed before the kill."""


class _Killed(Storage):
    def rename(self, source: Path, target: Path) -> None:
        if target.name.startswith(f"model-{SEALED + 1:05}"):
            os.kill(os.getpid(), signal.SIGKILL)
        super().rename(source, target)


def merge_until_killed(options: Options, config: Path, out: Path) -> None:
    """Merge in a child process, which SIGKILL ends when two shards are sealed."""
    if (child := os.fork()) == 0:
        try:
            Session(options, storage=_Killed()).run(config, out)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
