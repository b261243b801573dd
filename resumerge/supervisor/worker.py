"""The worker: a forked child that lives no longer than its supervisor.

Forked before anything large is imported and before any thread exists, it starts at no cost, with
the command line already parsed. It has a process group of its own, so that a Ctrl-C in a terminal
and a signal to the whole group arrive at the supervisor alone, which passes them on: the worker
gets each exactly once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress

from resumerge.host.memory import peak_rss_of
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe, Listener

_PR_SET_PDEATHSIG = 1
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGCHLD)


class Worker:
    """A worker process as its supervisor sees it."""

    def __init__(self, pid: int, listener: Listener, lifeline: int) -> None:
        self.pid, self.listener, self._lifeline = pid, listener, lifeline
        self.peak_rss = 0
        """Bytes: the most that it had when it was last looked at alive."""
        self._code: int | None = None

    @classmethod
    def start(cls, work: Callable[[HeartbeatPipe], int], close: Iterable[int] = ()) -> Worker:
        """Fork a worker.

        Args:
            work: what the worker does; returns its exit code. SIGINT and SIGTERM are blocked until
                it lets them in (`Stop.listening`), so that none of them is lost on the way.
            close: the supervisor's own files, which a worker must not hold open.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor = os.getpid()
        hear, tell = os.pipe()
        held, lifeline = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            for fd in (hear, lifeline, *close):
                os.close(fd)
            _be_worker(work, HeartbeatPipe(tell), supervisor, held)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        os.close(tell)
        os.close(held)
        with suppress(OSError):  # it did it first, or is gone
            os.setpgid(pid, pid)
        return cls(pid, Listener(hear), lifeline)

    def exit_code(self) -> int | None:
        """As `subprocess` has it: less a signal that killed it; None while it lives."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                self.listener.hear()
                self.listener.close()
                os.close(self._lifeline)
        return self._code

    def look(self) -> None:
        """Measure it: of the dead the kernel does not tell what they had."""
        self.peak_rss = max(self.peak_rss, peak_rss_of(self.pid))

    def send(self, signum: int) -> None:
        """Send a signal, unless it is dead already."""
        if self._code is None:
            os.kill(self.pid, signum)


def _be_worker(
    work: Callable[[HeartbeatPipe], int], link: HeartbeatPipe, supervisor: int, lifeline: int
) -> None:
    """The rest of the child's life. It leaves without tearing torch down, which takes 0.5 s."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for signum in _HANDLED:  # not ignored, which would discard one that waits to be let in
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it may write to a terminal it does not own
        os.setpgid(0, 0)
        _die_with(supervisor, lifeline)
        code = work(link)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)  # too late to change how it ends
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _die_with(supervisor: int, lifeline: int) -> None:
    """See to it that the kernel kills this process when its supervisor dies, however it does.

    Where the kernel cannot be asked to, a thread waits for the end of a pipe that only the
    supervisor could write to.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None and prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0:
        if os.getppid() != supervisor:  # it died before
            os.kill(os.getpid(), signal.SIGKILL)
        return
    threading.Thread(target=_watch, args=(lifeline,), name="lifeline", daemon=True).start()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)
