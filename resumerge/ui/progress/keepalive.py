"""Signs of life: a line that is redrawn on a terminal, or a new line every few seconds in a log.

Hosts of notebooks stop a machine that prints nothing for a long time, and people believe that it
hangs. In a log, the pauses between lines grow with time.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from resumerge.host.platform import in_notebook
from resumerge.sizes import so_far
from resumerge.ui.terminal.prose import say

LINE_SECONDS = 5.0
"""The seconds between two lines of progress."""

SILENCE_SECONDS = 8.0
"""The seconds without a line from the worker after which the supervisor prints a line."""

RARER_AFTER = 100.0
"""Seconds after which the pause between lines of a log is a twentieth of the elapsed time."""

RAREST_SECONDS = 60.0
"""The most seconds between two lines of a log, and the least between lines about a waiting run."""

DRAWN_PER_SECOND = 4

_TICK_SECONDS = 0.5

_JOIN_SECONDS = 2.0
"""The most seconds to wait for the thread. A blocked output would delay its end forever."""


class PrintClock:
    """A clock of the time since something was last printed.

    Attributes:
        on_print: called whenever something is printed.
    """

    def __init__(self) -> None:
        self.on_print: Callable[[], None] = lambda: None
        self._began = self._printed_at = time.monotonic()

    def reset(self, printed_at: float | None = None) -> None:
        """Record that something was printed.

        Args:
            printed_at: the time on the monotonic clock; None for now. An earlier time than the
                recorded one is ignored.
        """
        now = time.monotonic() if printed_at is None else printed_at
        self._printed_at = max(self._printed_at, now)
        self.on_print()

    @property
    def silence(self) -> float:
        """The seconds since something was printed."""
        return time.monotonic() - self._printed_at

    def is_due(self, seconds: float) -> bool:
        """Return whether a log should get another line.

        Args:
            seconds: the pause between the first lines; later pauses grow with the elapsed time.
        """
        growth = 1.0 if in_notebook() else (time.monotonic() - self._began) / RARER_AFTER
        return self.silence >= seconds * min(max(1.0, growth), RAREST_SECONDS / LINE_SECONDS)


class Seldom:
    """A callable that returns True at the first call, and then at most once a minute."""

    def __init__(self) -> None:
        self._yes_at = float("-inf")

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._yes_at < RAREST_SECONDS:
            return False
        self._yes_at = now
        return True


class Ticker:
    """A thread that calls a function every half second until it is stopped.

    The thread runs in the context of its creator, by which a notebook assigns output to a cell. An
    OSError or ValueError of the function ends the thread without a message.
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
        """Stop the calls, and wait at most two seconds for a call in progress."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with suppress(OSError, ValueError):  # the output is closed
            while not self._over.wait(_TICK_SECONDS):
                self._tick()


@contextmanager
def keepalive(console: Console | None, what: str) -> Iterator[Callable[[str], None]]:
    """Show a description of the work inside the context, and the seconds that it takes.

    Args:
        console: the console to print on; None to show nothing.
        what: the first description, like ``reading``; the yielded function replaces it.

    Yields:
        A function that replaces the description.
    """
    message, clock, start_time = [what], PrintClock(), time.monotonic()

    def line() -> str:
        return so_far(message[0], time.monotonic() - start_time)

    def change(what: str) -> None:
        message[0] = what

    if console is None:
        yield change
        return
    if console.is_terminal:
        with drawn(console, lambda: Text(line(), no_wrap=True, overflow="ellipsis")):
            yield change
        return

    def tick() -> None:
        if clock.is_due(LINE_SECONDS):
            clock.reset()
            say(console, line())

    ticker = Ticker(tick)
    try:
        yield change
    finally:
        ticker.stop()


class _Drawn(Live):
    """A part of the terminal whose first, empty frame is drawn before its thread starts.

    rich places printed text relative to the last rendered frame. Two threads may write in a
    different order than they rendered. That is harmless between frames of equal height. But text
    that was rendered before the first frame, and written after it, would continue the frame's line.
    """

    def start(self, refresh: bool = True) -> None:
        """Draw the first frame, then start the thread that draws."""
        super().start(refresh)


def drawn(console: Console, frame: Callable[[], RenderableType]) -> Live:
    """Return a part of the terminal that is redrawn below the printed text.

    Nothing is drawn if the work ends within the time of one frame.
    """
    time_of_first_frame = time.monotonic() + 1 / DRAWN_PER_SECOND
    return _Drawn(
        Text(),
        get_renderable=lambda: frame() if time.monotonic() >= time_of_first_frame else Text(),
        console=console,
        transient=True,
        refresh_per_second=DRAWN_PER_SECOND,
        vertical_overflow="crop",
    )
