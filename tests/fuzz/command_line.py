"""Calls of commands in this process: exit codes as on the command line, CPU time and memory."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO
from unittest.mock import patch

from resumerge.cli.main import main
from resumerge.mirror.stores.base import Store

SECONDS = 10.0
"""The most CPU time of a case; more is a finding."""

STUCK_SECONDS = 300.0
"""The time after which the process ends with a traceback of every thread: the case is stuck."""

LARGEST_RSS = 500_000_000
MOST_MEMORY = 4 << 30
"""The most bytes that can be allocated, so that a finding does not exhaust the machine."""

EXPECTED = (0, 2, 75)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
SIGNALLED = tuple(128 + signum for signum in ENDING)
"""The exit codes after a signal from outside."""

_FRAME = re.compile(r'^  File ".*?/(resumerge/[^"]+)", line (\d+), in (\S+)$', re.MULTILINE)
_RAISED = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Warning|TooLong)\b.*)$", re.MULTILINE)


class TooLong(BaseException):
    """The error of a case that computes for more than `SECONDS`."""


@dataclass(frozen=True)
class Ending:
    """The end of a command.

    Args:
        code: the exit code; 1 for an exception that the command line does not handle.
        said: stderr, with the traceback.
    """

    words: Sequence[str]
    code: int
    said: str

    @property
    def signature(self) -> str:
        """The place and the kind of the error: the same for the same bug."""
        frames, raised = _FRAME.findall(self.said), _RAISED.findall(self.said)
        place = ":".join(frames[-1][:2]) if frames else self.words[0]
        return f"{place} {raised[-1].partition(':')[0] if raised else f'exit {self.code}'}"


def call(words: Sequence[str]) -> Ending:
    """Call a command of `resumerge`, and return how it ended."""
    code = 0
    with (
        _file_in_memory() as out,
        _file_in_memory() as err,
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["", *words]),
        patch.object(Store, "patience", 0.5),  # a mirror that is away is waited for
    ):
        before = {signum: signal.getsignal(signum) for signum in ENDING}
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except (Exception, TooLong):
            code = 1
            traceback.print_exc()
        finally:
            for signum, handler in before.items():  # a command that merges ignores them at its end
                signal.signal(signum, handler)
        sys.stderr.flush()
        said = os.pread(err.fileno(), os.fstat(err.fileno()).st_size, 0)
    return Ending(words, code, said.decode(errors="replace"))


def limit_memory() -> None:
    """Let this process allocate `MOST_MEMORY` at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, hard))


@contextmanager
def limited_time() -> Iterator[None]:
    """Raise `TooLong` in this thread after `SECONDS`; end the process after `STUCK_SECONDS`."""

    def too_long(signum: int, frame: FrameType | None) -> None:
        raise TooLong(f"more than {SECONDS:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)
    faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True, file=2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)


@dataclass
class Took:
    """The CPU time and the peak memory of a case, and the process's memory after it."""

    seconds: float = 0.0
    peak_rss: int = 0
    rss: int = 0


@contextmanager
def measured() -> Iterator[Took]:
    """Yield a `Took`, which the context's end fills with its CPU time and resident memory."""
    ctypes.CDLL(None).malloc_trim(0)  # what earlier cases have freed
    took, began = Took(), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")
    yield took
    took.seconds = time.process_time() - began
    status = Path("/proc/self/status").read_text()
    took.peak_rss = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    took.rss = 1024 * int(status.partition("VmRSS:")[2].split()[0])


def _file_in_memory() -> TextIO:
    return os.fdopen(os.memfd_create("stream"), "w", encoding="utf-8")
