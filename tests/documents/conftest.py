"""One run that was killed, stopped by a signal and finished, for the tests of status."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from asking import run_of, start

RECIPE = """
merge_method: linear
models:
  - {model: math, parameters: {weight: 1}}
  - {model: code, parameters: {weight: 1}}
dtype: bfloat16
"""

STOPPED = """
import os
from resumerge.engine.execute.committer import Committer
whole, sent = Committer._commit, []
def commit(self, batch):
    whole(self, batch)
    total = sum(unit.nbytes for unit in self._execution.plan.units)
    if not sent and self.bytes_committed >= {share} * total:
        sent.append({number})
        os.kill(os.getpid(), *sent)
Committer._commit = commit
from resumerge.cli.main import main
main()
"""
"""A process that sends itself a signal when so much is committed."""


def merge_until(share: float, sent: signal.Signals, place: Path, *words: object) -> None:
    """Work on a run until it sends itself a signal, at a share of its bytes."""
    code = STOPPED.format(share=share, number=int(sent))
    command = [sys.executable, "-c", code, *map(str, words), "--no-supervise"]
    subprocess.run(command, cwd=place, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def storied(tmp_path_factory: pytest.TempPathFactory, large_llamas: Path) -> Path:
    """Make a folder whose `state` holds one finished run of three attempts."""
    place = tmp_path_factory.mktemp("storied")
    for model in large_llamas.iterdir():
        (place / model.name).symlink_to(model)
    (place / "linear.yaml").write_text(RECIPE)
    begin = ("run", "linear.yaml", "merged", "--memory", "100MB", "--threads", "1")
    merge_until(0.2, signal.SIGKILL, place, *begin)
    merge_until(0.5, signal.SIGTERM, place, "resume")
    start("resume", "--no-supervise", cwd=place, stderr=subprocess.DEVNULL).wait()
    outcomes = [attempt["outcome"] for attempt in run_of(place)["attempts"]]
    assert outcomes == ["killed", "interrupted", "done"]
    return place
