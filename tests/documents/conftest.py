"""One run that was killed, stopped by a signal and finished, for status to speak of."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from asking import run_of, start

import resumerge

RECIPE = """
merge_method: linear
models:
  - {model: math, parameters: {weight: 1}}
  - {model: code, parameters: {weight: 1}}
dtype: bfloat16
"""

TRIES = 10


def merge_until(share: float, sent: signal.Signals | None, place: Path, *words: object) -> None:
    """Work on a run and send it a signal when so much is committed; None lets it finish."""
    process = start(*words, "--no-supervise", cwd=place, stderr=subprocess.DEVNULL)
    while sent is not None and process.poll() is None:
        found = resumerge.status(state_dir=place / "state")["runs"]
        nbytes = found[0]["bytes"] if found else {"total": 1, "committed": 0}
        if nbytes["committed"] >= share * nbytes["total"]:
            process.send_signal(sent)
            break
        time.sleep(0.02)
    process.wait()


@pytest.fixture(scope="session")
def storied(tmp_path_factory: pytest.TempPathFactory, large_llamas: Path) -> Path:
    """A folder whose `state` holds one finished run of three attempts.

    Where this process looks too late, an attempt has done everything: then it begins again.
    """
    for _ in range(TRIES):
        place = tmp_path_factory.mktemp("storied")
        for model in large_llamas.iterdir():
            (place / model.name).symlink_to(model)
        (place / "linear.yaml").write_text(RECIPE)
        begin = ("run", "linear.yaml", "merged", "--memory", "100MB", "--threads", "1")
        merge_until(0.2, signal.SIGKILL, place, *begin)
        merge_until(0.5, signal.SIGTERM, place, "resume")
        merge_until(1.0, None, place, "resume")
        outcomes = [attempt["outcome"] for attempt in run_of(place)["attempts"]]
        if outcomes == ["killed", "interrupted", "done"]:
            return place
    pytest.fail(f"{TRIES} runs were not stopped in time; the last one: {outcomes}")
