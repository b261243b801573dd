"""A line of output every few seconds, whatever happens.

Hosts of notebooks stop a machine that prints nothing for long, and people take it for hung.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from resumerge.sizes import show_seconds

LINE_SECONDS = 5.0
"""Between two lines of progress."""

SILENCE_SECONDS = 8.0
"""After so long without a line from the worker, its supervisor prints one."""

_TICK_SECONDS = 0.5

_JOIN_SECONDS = 2.0
"""Longest wait for the thread: a reader that does not read blocks it, and the run must end."""


class PrintClock:
    """The time since something was last printed.

    Attributes:
        on_print: called whenever something is printed.
    """

    def __init__(self) -> None:
        self.on_print: Callable[[], None] = lambda: None
        self._printed_at = time.monotonic()

    def reset(self, printed_at: float | None = None) -> None:
        """Something was printed, now or at a time of the monotonic clock; the latest counts."""
        now = time.monotonic() if printed_at is None else printed_at
        self._printed_at = max(self._printed_at, now)
        self.on_print()

    @property
    def silence(self) -> float:
        """Seconds since something was printed."""
        return time.monotonic() - self._printed_at


class Ticker:
    """A thread that calls a function every half second until it is stopped.

    The thread runs in the context of its creator: a notebook finds the cell that output belongs to
    by the context. An OSError or ValueError of the function ends the thread silently.
    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._over = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="ticker", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Make no further call. A call that is under way is waited for, for two seconds."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads the output any more
            while not self._over.wait(_TICK_SECONDS):
                self._tick()


@contextmanager
def keepalive(console: Console | None, what: str) -> Iterator[None]:
    """Print every few seconds that `what` is still being done; print nothing for None."""
    if console is None:
        yield
        return
    clock, started = PrintClock(), time.monotonic()

    def tick() -> None:
        if clock.silence >= LINE_SECONDS:
            clock.reset()
            text = f"{what}: {show_seconds(time.monotonic() - started)} so far"
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    ticker = Ticker(tick)
    try:
        yield
    finally:
        ticker.stop()
