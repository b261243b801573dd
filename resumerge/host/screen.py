"""Where output goes: to a terminal, a notebook's cell, or a log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO

from resumerge.host.platform import in_notebook

TERMINAL, CELL, LOG = "terminal", "cell", "log"


def goes_to(stream: IO[str], env: Mapping[str, str] | None = None) -> str:
    """``terminal``, ``cell`` or ``log``.

    A cell shows text only: it would print control codes, or one line for each state of a progress
    bar.
    """
    env = os.environ if env is None else env
    if in_notebook(env):
        return CELL
    try:
        terminal = stream.isatty() and env.get("TERM") != "dumb"
    except ValueError:  # the stream is closed
        return LOG
    return TERMINAL if terminal else LOG
