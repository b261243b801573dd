"""SIGINT, SIGTERM and SIGHUP: the process finishes running blocks, commits them, and stops."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import FrameType

from resumerge.engine.resources.wakeup import woken_by
from resumerge.errors import Interrupted, StopSignal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a run; without SIGHUP if it is ignored, as under `nohup`."""
    hangup_signals = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup_signals)


def is_repetition(signum: int, before: int | None) -> bool:
    """Return whether a signal only repeats an earlier one: a closing terminal sends several."""
    return before is not None and signum == signal.SIGHUP


class StopRequest:
    """The request to stop the run, which a signal sets.

    Outside `deferred`, a signal raises `StopSignal` at once, which `listening` turns into
    `Interrupted`. Inside `deferred`, the signal is only recorded, and the engine checks for it
    between two blocks. A signal is also only recorded where the interpreter ignores exceptions (a
    finalizer, a callback of a weak reference). A second signal ends the process at once; no
    committed block is lost.

    Args:
        last_words: called with the number of the first signal before a second signal ends the
            process.
        patient: whether to ignore a second signal, for a process that does more than this run (a
            notebook).
        final: whether the process ends after this run. Later signals are then ignored, so that they
            do not change its exit code.
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
        """Handle signals inside the context; in a thread other than the main thread, do nothing.

        Raises:
            Interrupted: a signal arrived.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        try:
            with self._handling(stop_signals()):
                yield self
        except StopSignal:
            assert self.signum is not None
            raise Interrupted(self.signum) from None

    @contextmanager
    def _handling(self, signums: tuple[signal.Signals, ...]) -> Iterator[None]:
        with woken_by(signums):
            old_handlers = {signum: signal.signal(signum, self._handle) for signum in signums}
            old_hook = sys.unraisablehook
            sys.unraisablehook = _without_interrupts(old_hook)
            try:
                # A worker starts with these signals blocked.
                signal.pthread_sigmask(signal.SIG_UNBLOCK, signums)
                yield
            finally:
                sys.unraisablehook = old_hook
                for stop_signal, handler in old_handlers.items():
                    signal.signal(stop_signal, signal.SIG_IGN if self._final else handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Only record signals inside the context, instead of raising `StopSignal`."""
        was_deferred, self._deferred = self._deferred, True
        try:
            yield
        finally:
            self._deferred = was_deferred

    @contextmanager
    def between_imports(self) -> Iterator[None]:
        """Defer signals inside the context, but check for them before the next module import.

        A signal handler that raises during an import may run in a callback of the interpreter,
        where exceptions are ignored.
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
            raise StopSignal


def _without_interrupts(
    show: Callable[[sys.UnraisableHookArgs], object],
) -> Callable[[sys.UnraisableHookArgs], object]:
    """Return a hook that shows ignored exceptions, except `StopSignal`."""

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if ignored.exc_type is not StopSignal:
            show(ignored)

    return hook


class _StopBeforeImport(MetaPathFinder):
    """An import hook that finds no module, and raises `Interrupted` after a signal."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def find_spec(self, *_: object) -> None:
        self._stop.check()
