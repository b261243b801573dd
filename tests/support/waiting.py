"""Waiting for what a test expects, with one bound for all that ends only what hangs."""

from __future__ import annotations

import inspect
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from threading import Thread
from typing import Any, TypeVar

HANGS_SECONDS = 300.0
"""A time longer than anything takes on a busy machine, and shorter than a test may take."""

Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found],
    process: subprocess.Popen[Any] | Thread | None = None,
    every: float = 0.02,
) -> Found:
    """Wait until a condition is true, and return what it returned.

    Args:
        condition: called again and again. It should stay true, because a busy machine may call it
            late.
        process: the process that makes it true. After its end the condition is called once more.
        every: the seconds between two calls.

    Raises:
        AssertionError: the process has ended before, or the condition is not true in time.
    """
    began, over = time.monotonic(), False
    while not (found := condition()):
        assert not over, f"it ended before:\n{_source(condition)}\n{_last_words(process)}"
        waited = time.monotonic() - began
        assert waited < HANGS_SECONDS, f"not within {waited:.0f} s:\n{_source(condition)}"
        over = _has_ended(process)
        if not over:
            time.sleep(every)
    return found


def kill_wholly(pids: Iterable[int]) -> None:
    """Kill processes, children or not, and wait until the last thread of each has ended.

    A process seems to have ended when its first thread has; another may still be in the middle of a
    change to a file.
    """
    with ExitStack() as stack:
        handles = []
        for pid in pids:
            with suppress(ProcessLookupError):
                handles.append(os.pidfd_open(pid))
                stack.callback(os.close, handles[-1])
        for handle in handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles:
            assert select.select([handle], [], [], HANGS_SECONDS)[0], "a killed process hangs"


def _has_ended(process: subprocess.Popen[Any] | Thread | None) -> bool:
    if isinstance(process, Thread):
        return not process.is_alive()
    return process is not None and process.poll() is not None


def _last_words(process: subprocess.Popen[Any] | Thread | None) -> str:
    """Return a process's exit code, and its stdout and stderr if these are pipes."""
    if not isinstance(process, subprocess.Popen):
        return ""
    said = [f"code {process.returncode}", *filter(None, process.communicate())]
    return "\n".join(text.decode() if isinstance(text, bytes) else text for text in said)


def _source(condition: Callable[[], object]) -> str:
    """Return the source of the condition as it is written in the test."""
    try:
        return inspect.getsource(condition)
    except (OSError, TypeError):  # a method of C, a partial
        return repr(condition)
