"""Promise: the advice after a stall fits the worker's last work."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from waiting import wait_until

from resumerge.host.stalled import ThreadState, blocked_thread
from resumerge.supervisor.worker_exit import WorkerExit
from resumerge.ui.progress.supervision import Supervision
from resumerge.ui.terminal.console import SafeConsole


def in_state(pid: int, state: str) -> ThreadState | None:
    found = blocked_thread(pid)
    return found if found.state == state else None


@pytest.mark.parametrize(
    ("program", "state", "advice"),
    [
        ("while True: pass", "R", "may be in an endless loop"),
        ("import time; time.sleep(99)", "S", "more time with --stall-timeout"),
        ("import os; os.kill(os.getpid(), 19)", "T", "find out what stopped the process"),
    ],
)
def test_a_worker_that_waits_for_no_disk(
    capsys: pytest.CaptureFixture[str], program: str, state: str, advice: str
) -> None:
    busy = subprocess.Popen([sys.executable, "-c", f"print(1, flush=True)\n{program}"], stdout=-1)
    try:
        assert busy.stdout is not None and busy.stdout.readline() == b"1\n"
        doing = wait_until(lambda: in_state(busy.pid, state), busy)
    finally:
        busy.kill()
        busy.communicate()
    teller = Supervision(SafeConsole(stderr=True), lambda run: "go on", as_json=False)
    teller.gave_up(WorkerExit(busy.pid, "stall", signal.SIGKILL, 600.0, doing), "run")
    said = capsys.readouterr().err
    assert advice in said.replace("\n", " ")
    assert "disk" not in said
    assert said.endswith("\ngo on\n")
