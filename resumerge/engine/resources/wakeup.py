"""Wakes the main thread after a signal that arrived as the main thread began to wait.

The interpreter runs signal handlers in the main thread, between two instructions. If a signal
arrives after the last instruction before a wait, and before the wait itself, nothing ends the wait.
The handler would then only run after the wait, for example for a server that does not answer.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

WAKE = signal.SIGURG
"""The signal that ends the main thread's wait.

Without a handler it has no effect. Its number is larger than those of the signals that stop a run,
and the interpreter runs pending handlers in the order of these numbers.
"""

FIRST_PAUSE_SECONDS = 0.02
"""Seconds between the first `WAKE` and the second. Each further pause is twice as long."""


@contextmanager
def woken_by(signums: Iterable[signal.Signals]) -> Iterator[None]:
    """Have the handlers of signals run soon, even if the main thread waits; for the main thread.

    A thread gets the number of each signal from the interpreter's wake-up descriptor. It ends the
    main thread's waits until the handlers have run. An earlier wake-up descriptor still gets the
    numbers, and an earlier handler of `WAKE` is still called, so contexts may be nested.

    Args:
        signums: the signals. They have smaller numbers than `WAKE`, and handlers in Python.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    waker = _Waker(read_end, frozenset(signums))
    waker.start()
    waker.old_handler = old_handler = signal.signal(WAKE, waker.woken)
    waker.old_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(waker.old_fd)
        os.close(write_end)
        waker.end()
        signal.signal(WAKE, old_handler)


class _Waker:
    """The thread that wakes the main thread, which creates this object.

    Args:
        fd: the descriptor from which the numbers of signals are read; it is closed at the end.
        signums: the signals to wake for.

    Attributes:
        old_fd: the descriptor to which the numbers are written again; -1 for none.
        old_handler: the earlier handler of `WAKE`.
    """

    def __init__(self, fd: int, signums: frozenset[signal.Signals]) -> None:
        self.old_fd = -1
        self.old_handler: object = signal.SIG_DFL
        self._fd, self._signums = fd, signums
        self._main_thread = threading.get_ident()
        self._has_woken = True
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="signals", daemon=True)

    def start(self) -> None:
        """Start the thread. It never receives the signals itself."""
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._signums)  # threads inherit it
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)

    def end(self) -> None:
        """End the thread, after the other end of the descriptor was closed."""
        self._over.set()
        self._thread.join()

    def woken(self, signum: int, frame: FrameType | None) -> None:
        """Handle `WAKE`: the handlers of earlier signals have run."""
        self._has_woken = True
        if callable(self.old_handler):
            self.old_handler(signum, frame)

    def _run(self) -> None:
        while signal_numbers := os.read(self._fd, 256):
            if self.old_fd != -1:
                with suppress(OSError):  # its owner has closed it, or does not read it
                    os.write(self.old_fd, signal_numbers)
            if not self._signums.isdisjoint(signal_numbers):
                self._wake()
        os.close(self._fd)

    def _wake(self) -> None:
        """Interrupt the main thread until it has run its handlers, or the end."""
        self._has_woken, pause = False, FIRST_PAUSE_SECONDS
        while not self._has_woken and not self._over.is_set():
            signal.pthread_kill(self._main_thread, WAKE)
            self._over.wait(pause)
            pause *= 2
