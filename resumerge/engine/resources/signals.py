"""SIGINT, SIGTERM and SIGHUP: finish the running blocks, commit, and stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import FrameType

from resumerge.errors import Interrupted


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask to stop; without SIGHUP if it is ignored, as by `nohup`."""
    hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hang_up)


def is_repetition(signum: int, before: int | None) -> bool:
    """Return whether a signal repeats an earlier one: a terminal that hangs up sends several."""
    return before is not None and signum == signal.SIGHUP


class StopRequest:
    """The request to stop that a signal makes.

    Outside `deferred` a signal raises `Interrupted` at once. Inside, the signal is only noted, and
    the engine checks for it between two blocks. It is also only noted where the interpreter ignores
    exceptions (a finalizer, a callback of a weak reference). A second signal ends the process at
    once, which loses no committed block.

    Args:
        last_words: called with the first signal's number before a second signal ends the process.
        patient: whether to ignore a second signal, in a process that does more than this run (a
            notebook).
        final: whether the process does nothing after this run: a later signal is too late to change
            its exit code.
    """

    def __init__(
        self,
        last_words: Callable[[int], None] | None = None,
        *,
        patient: bool = False,
        final: bool = False,
    ) -> None:
        self._patient, self._final = patient, final
        self._last_words = last_words or (lambda signum: None)
        self.signum: int | None = None
        self._deferred = False

    @property
    def requested(self) -> bool:
        return self.signum is not None

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Handle signals inside the context. Only in the main thread: others may not handle any."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {signum: signal.signal(signum, self._handle) for signum in stop_signals()}
        show, sys.unraisablehook = sys.unraisablehook, _without_interrupts(sys.unraisablehook)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, before)  # a worker starts with them blocked
            yield self
        finally:
            sys.unraisablehook = show
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if self._final else handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Note signals inside instead of raising `Interrupted`."""
        before, self._deferred = self._deferred, True
        try:
            yield
        finally:
            self._deferred = before

    @contextmanager
    def between_imports(self) -> Iterator[None]:
        """Raise `Interrupted` before the next module is imported.

        If a signal's handler raised in the middle of an import, it might do so in a callback of the
        interpreter, where exceptions are ignored.
        """
        finder = _StopBeforeImport(self)
        sys.meta_path.insert(0, finder)
        try:
            with self.deferred():
                yield
        finally:
            sys.meta_path.remove(finder)
        self.check()

    def check(self) -> None:
        """Raise `Interrupted` if a signal arrived."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None and (self._patient or is_repetition(signum, self.signum)):
            return
        if self.signum is not None:
            self._last_words(self.signum)
            os._exit(128 + self.signum)
        self.signum = signum
        if not self._deferred:
            raise Interrupted(signum)


def _without_interrupts(
    show: Callable[[sys.UnraisableHookArgs], object],
) -> Callable[[sys.UnraisableHookArgs], object]:
    """Return a hook that shows exceptions that Python ignores, except `Interrupted`."""

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if ignored.exc_type is not Interrupted:
            show(ignored)

    return hook


class _StopBeforeImport(MetaPathFinder):
    """A finder of no module, which raises `Interrupted` if the process has been asked to stop."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def find_spec(self, *_: object) -> None:
        self._stop.check()
