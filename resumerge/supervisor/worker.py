"""The worker: a forked child process that dies with its supervisor.

It is forked after the command line was parsed, and before large imports and the first thread, so it
starts fast. It has a process group of its own. Therefore Ctrl-C in a terminal, or a signal to the
whole group, reaches only the supervisor, which forwards it. The worker receives each signal exactly
once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress

from resumerge.engine.resources.signals import stop_signals
from resumerge.host.memory import peak_rss_of
from resumerge.host.system import libc
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe, Listener

_PR_SET_PDEATHSIG = 1


class Worker:
    """A worker process, as seen by its supervisor.

    Args:
        pid: the worker's process id.
        listener: the supervisor's end of the heartbeat pipe.
        lifeline: the descriptor of a pipe whose other end the worker watches (`_die_with`).
    """

    def __init__(self, pid: int, listener: Listener, lifeline: int) -> None:
        self.pid, self.listener, self._lifeline = pid, listener, lifeline
        self.peak_rss = 0
        """The largest RSS in bytes that `measure` found."""
        self._code: int | None = None

    @classmethod
    def start(cls, work: Callable[[HeartbeatPipe], int], close: Iterable[int] = ()) -> Worker:
        """Fork a worker.

        Args:
            work: called in the worker; returns the exit code. `stop_signals` are blocked until
                `work` handles them (`StopRequest.listening`), so that no signal is lost.
            close: the supervisor's own file descriptors, which the worker closes.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor_pid = os.getpid()
        heartbeat_read_end, heartbeat_write_end = os.pipe()
        lifeline_read_end, lifeline_write_end = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
        pid = os.fork()
        if pid == 0:
            for fd in (heartbeat_read_end, lifeline_write_end, *close):
                os.close(fd)
            _be_worker(work, HeartbeatPipe(heartbeat_write_end), supervisor_pid, lifeline_read_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stop_signals())
        os.close(heartbeat_write_end)
        os.close(lifeline_read_end)
        with suppress(OSError):  # the worker has already set its group, or is dead
            os.setpgid(pid, pid)
        return cls(pid, Listener(heartbeat_read_end), lifeline_write_end)

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while the worker is alive."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                self.listener.receive()
                self.listener.close()
                os.close(self._lifeline)
        return self._code

    def measure(self) -> None:
        """Update `peak_rss`. The kernel reports it only while the worker is alive."""
        self.peak_rss = max(self.peak_rss, peak_rss_of(self.pid))

    def send(self, signum: int) -> None:
        """Send a signal, unless the worker is dead."""
        if self._code is None:
            os.kill(self.pid, signum)


def _be_worker(
    work: Callable[[HeartbeatPipe], int], link: HeartbeatPipe, supervisor: int, lifeline: int
) -> None:
    """Call `work` in the child process, and exit without calling the parent's exit functions.

    Args:
        work: called with `link`; returns the exit code of this process.
        link: the worker's end of the heartbeat pipe.
        supervisor: the supervisor's process id.
        lifeline: the end of the pipe to watch, see `_die_with`.
    """
    exit_code = 1
    try:
        signal.set_wakeup_fd(-1)
        for signum in (*stop_signals(), signal.SIGTSTP, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)  # SIG_IGN would discard a blocked signal
        # A process that ignores SIGTTOU may write to a terminal that it does not own.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.setpgid(0, 0)
        _die_with(supervisor, lifeline)
        exit_code = work(link)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(exit_code)


def _die_with(supervisor: int, lifeline: int) -> None:
    """Arrange that this process is killed when its supervisor dies.

    On Linux, the kernel does this. On other systems, a thread waits for the end of a pipe whose
    write end only the supervisor has.
    """
    prctl = libc("prctl")
    if prctl is not None and prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0:
        if os.getppid() != supervisor:  # the supervisor died before the call
            os.kill(os.getpid(), signal.SIGKILL)
        return
    threading.Thread(target=_watch, args=(lifeline,), name="lifeline", daemon=True).start()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)
