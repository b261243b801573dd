"""A process that has torch imported and forks a child for every job, before it has any thread.

Jobs come as JSON lines on stdin, and how each ended goes as JSON lines to stdout.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import HANGS_SECONDS

WARM = (
    "numpy.random",
    "rich._emoji_codes",
    "resumerge.sources.local",
    "resumerge.engine.resources.allocator",
    "resumerge.engine.execute.committer",
    "resumerge.engine.evaluation.evaluator",
    "resumerge.engine.recovery.recovery",
)
"""What an attempt imports on its way; imported before the fork, it is there at once."""

if importlib.util.find_spec("torch") is not None:
    WARM = ("torch", *WARM, "resumerge.engine.evaluation.torch_backend")


class Server:
    """A process that runs a script which calls `serve`."""

    def __init__(self, driver: Path) -> None:
        path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, str(driver)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )

    def begin(self, **job: Any) -> None:
        """Begin a job, which has a file for its log and one for what it says."""
        assert self._process.stdin is not None
        self.log, self._stderr = Path(job["log"]), Path(job["stderr"])
        self.log.unlink(missing_ok=True)
        print(json.dumps(job, default=str), file=self._process.stdin, flush=True)

    def wait(self) -> tuple[int, dict[str, Any], str]:
        """Wait for the end of the job: its exit code (or less the signal), its log, what it said.

        The log is empty where the job came to no end of its own.
        """
        assert self._process.stdout is not None
        code = json.loads(self._process.stdout.readline())["code"]
        told = json.loads(self.log.read_text()) if self.log.exists() else {}
        return code, told, self._stderr.read_text()

    def close(self) -> None:
        self._process.communicate()


def serve(work: Callable[[dict[str, Any]], int]) -> None:
    """Do each job in a child, after this process has imported what the job names in `imports`.

    Args:
        work: a job; returns the exit code.
    """
    for name in WARM:
        importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        for name in job.get("imports", ()):
            importlib.import_module(name)
        pid = os.fork()
        if pid == 0:
            _child(work, job)
        print(json.dumps({"code": _wait(pid)}), flush=True)


def exit_code_of(merge: Callable[[], int]) -> int:
    """The exit code of the command line for what a merge returns or raises, which is printed."""
    from resumerge.errors import ResumergeError

    try:
        return merge()
    except ResumergeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except BaseException:
        traceback.print_exc()
        return 1


def _child(work: Callable[[dict[str, Any]], int], job: dict[str, Any]) -> None:
    code = 1
    try:
        fd = os.open(job["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        code = work(job)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int) -> int:
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
