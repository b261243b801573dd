"""The reading of a key while the terminal shows a live display."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def wait_for_q() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for some seconds, and returns whether q was typed meanwhile.

    Without a terminal, or in the background, the function only waits. Typed characters are not
    echoed inside the context. At its end, the terminal's settings are restored.
    """
    fd = _terminal()
    if fd is None:
        yield _sleep
        return
    settings = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSANOW)  # Ctrl-C stays a signal
        yield lambda seconds: _is_q(fd, seconds)
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, settings)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _is_q(fd: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (time_left := end - time.monotonic()) > 0 and select.select([fd], [], [], time_left)[0]:
        typed_bytes = os.read(fd, 64)
        if not typed_bytes:  # the terminal is closed
            return _sleep(time_left)
        if b"q" in typed_bytes.lower():
            return True
    return False


def _terminal() -> int | None:
    """Return the descriptor of the terminal that this process may read from, if there is one."""
    try:
        fd = sys.stdin.fileno()
        return fd if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp() else None
    except (AttributeError, OSError, ValueError):  # no stdin, or a stdin without a descriptor
        return None
