"""A process that has torch imported and forks a child for every job, before it has any thread.

It reads jobs as JSON lines from stdin, and writes the exit code of each as a JSON line to stdout.
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
"""The modules that an attempt imports: imported before the fork, they take a job no time."""

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
        """Begin a job, which names a file for its log and one for its output."""
        assert self._process.stdin is not None
        self.log, self._stderr = Path(job["log"]), Path(job["stderr"])
        self.log.unlink(missing_ok=True)
        print(json.dumps(job, default=str), file=self._process.stdin, flush=True)

    def wait(self) -> tuple[int, dict[str, Any], str]:
        """Wait for the end of the job; return its exit code (or minus the signal), log and output.

        The log is empty if the job wrote none before its end.
        """
        assert self._process.stdout is not None
        code = json.loads(self._process.stdout.readline())["code"]
        told = json.loads(self.log.read_text()) if self.log.exists() else {}
        return code, told, self._stderr.read_text()

    def close(self) -> None:
        self._process.communicate()


def serve(work: Callable[[dict[str, Any]], int]) -> None:
    """Run each job in a child, after this process has imported what the job names in `imports`.

    Args:
        work: the function that does a job, and returns its exit code.
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
    """Run a merge, print its error, and return the exit code that the command line would have."""
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
    """Return a child's exit code, or minus its signal; kill a child that hangs, and return 1."""
    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 1
