"""When Python looks for garbage in cycles: not while a command begins, which makes little but keeps
most of what it makes.

With Python's own settings a tenth of the time until a merge begins goes into looking through
modules.
"""

from __future__ import annotations

import gc

_LATE = 200_000
"""New containers; a command that only looks at something ends before there are so many."""

_usual: tuple[int, int, int] | None = None


def collect_late() -> None:
    """To be called first of all, by who has the process for itself."""
    global _usual
    _usual = gc.get_threshold()
    gc.set_threshold(_LATE)


def collect_as_usual() -> None:
    """From here on, as memory is to be bounded; what there is now is looked at no more.

    Does nothing where `collect_late` was not called: it is not our process.
    """
    global _usual
    if _usual is not None:
        gc.freeze()
        gc.set_threshold(*_usual)
        _usual = None
