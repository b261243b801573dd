"""Never silent for long: a thread that speaks where nothing else has, and who spoke last.

Notebooks' hosts take a machine that prints nothing for abandoned, and so do people.
"""

from __future__ import annotations

import contextvars
import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from resumerge.report.sizes import show_seconds

LINE_SECONDS = 5.0
"""Time between two lines of progress."""

SILENCE_SECONDS = 8.0
"""After so long a supervisor speaks for a worker that does not."""

_LOOK_SECONDS = 0.5

_PATIENCE_SECONDS = 2.0
"""A reader that takes nothing holds the thread up: the run shall end all the same."""


class LastSaid:
    """When something was last printed, on the monotonic clock; shared with forked processes."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)
        self.now()

    def now(self) -> None:
        """Something is printed now."""
        self._memory[:8] = struct.pack("d", time.monotonic())

    @property
    def silence(self) -> float:
        """Seconds since."""
        return time.monotonic() - float(struct.unpack("d", self._memory[:8])[0])


class Ticker:
    """Calls a function every half second from a thread of its own, until it is stopped.

    In the context of whoever makes it, since a notebook finds the cell that output belongs to by
    that. What the function raises ends the ticking, and nothing else.
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
        """No call comes after this, and none is under way as a rule."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        with suppress(OSError, ValueError):  # whoever was told is gone
            while not self._over.wait(_LOOK_SECONDS):
                self._tick()


@contextmanager
def told_meanwhile(console: Console | None, what: str) -> Iterator[None]:
    """Say every few seconds that something is still being done, while it is; None: say nothing."""
    if console is None:
        yield
        return
    said, began = LastSaid(), time.monotonic()

    def tick() -> None:
        if said.silence >= LINE_SECONDS:
            said.now()
            text = f"{what}: {show_seconds(time.monotonic() - began)} so far"
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    ticker = Ticker(tick)
    try:
        yield
    finally:
        ticker.stop()
