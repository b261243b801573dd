"""Signs of life: a line that is drawn again on a terminal, and elsewhere a line every few seconds.

Hosts of notebooks stop a machine that prints nothing for long, and people take it for hung. Logs
get fewer lines as time goes by.
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
"""The time between two lines of progress."""

SILENCE_SECONDS = 8.0
"""The time without a line from the worker after which its supervisor prints one."""

RARER_AFTER = 100.0
"""The seconds after which the pause between lines of a log is a twentieth of the elapsed time."""

RAREST_SECONDS = 60.0
"""The longest time between two lines of a log, also between lines about a run that waits."""

DRAWN_PER_SECOND = 4

_TICK_SECONDS = 0.5

_JOIN_SECONDS = 2.0
"""The longest wait for the thread: a reader that does not read blocks it, and the run must end."""


class PrintClock:
    """A clock of the time since something was last printed.

    Attributes:
        on_print: called whenever something is printed.
    """

    def __init__(self) -> None:
        self.on_print: Callable[[], None] = lambda: None
        self._began = self._printed_at = time.monotonic()

    def reset(self, printed_at: float | None = None) -> None:
        """Note that something was printed, now or at a time of the monotonic clock.

        The latest time counts.
        """
        now = time.monotonic() if printed_at is None else printed_at
        self._printed_at = max(self._printed_at, now)
        self.on_print()

    @property
    def silence(self) -> float:
        """Return the seconds since something was printed."""
        return time.monotonic() - self._printed_at

    def is_due(self, seconds: float) -> bool:
        """Return whether a log gets another line, given the seconds between its first lines."""
        rarer = 1.0 if in_notebook() else (time.monotonic() - self._began) / RARER_AFTER
        return self.silence >= seconds * min(max(1.0, rarer), RAREST_SECONDS / LINE_SECONDS)


class Seldom:
    """Answers yes the first time, and then at most once in a minute."""

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
        """Make no further call. Wait two seconds for a call that is under way."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads the output any more
            while not self._over.wait(_TICK_SECONDS):
                self._tick()


@contextmanager
def keepalive(console: Console | None, what: str) -> Iterator[Callable[[str], None]]:
    """Show that a work (`what`) is still being done, and for how long; show nothing for None.

    Yields:
        A function that replaces the text `what`.
    """
    now, clock, started = [what], PrintClock(), time.monotonic()

    def line() -> str:
        return so_far(now[0], time.monotonic() - started)

    def change(what: str) -> None:
        now[0] = what

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
    """A part of the terminal whose first frame, an empty one, is drawn before its thread starts.

    rich places what is printed below the last frame that was rendered, and two threads may write
    in the other order than they rendered. That is harmless between frames of the same height, but
    what is printed before the first frame and written after it would go on in the frame's line.
    """

    def start(self, refresh: bool = True) -> None:
        """Draw the first frame, then let the thread draw."""
        super().start(refresh)


def drawn(console: Console, frame: Callable[[], RenderableType]) -> Live:
    """Return a part of the terminal that is drawn again below what is printed meanwhile.

    Work that ends within the time of one frame is never shown.
    """
    seen_from = time.monotonic() + 1 / DRAWN_PER_SECOND
    return _Drawn(
        Text(),
        get_renderable=lambda: frame() if time.monotonic() >= seen_from else Text(),
        console=console,
        transient=True,
        refresh_per_second=DRAWN_PER_SECOND,
        vertical_overflow="crop",
    )
