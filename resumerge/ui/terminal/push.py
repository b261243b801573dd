"""``resumerge push`` for a terminal."""

from __future__ import annotations

from resumerge.engine.push import Pushed
from resumerge.sizes import counted, show_size


def show_pushed(pushed: Pushed) -> str:
    """What is there now."""
    there = show_size(pushed.nbytes - pushed.sent)
    known = f" ({there} were already there)" if pushed.sent < pushed.nbytes else ""
    what = f"{counted(len(pushed.files), 'file')}, {show_size(pushed.nbytes)}{known}"
    return f"Done: {what}, in {pushed.url}"
