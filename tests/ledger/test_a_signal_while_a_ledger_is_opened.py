"""Promise: wherever a signal's exception ends the opening of a ledger, nothing is printed later.

A generator that such an exception abandons ends when it is collected: if it then works with the
connection, which is closed by that time, Python prints an error about that.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import FrameType

import pytest

from resumerge.ledger import Ledger


class Stopped(BaseException):
    """The exception of a signal handler."""


def opened_until(path: Path, moment: int) -> bool:
    """Open and read a ledger, raise at a call or return, and return whether this was reached."""
    seen = 0

    def at_moment(frame: FrameType, event: str, arg: object) -> None:
        nonlocal seen
        if "sqlite" in frame.f_code.co_filename or "contextlib" in frame.f_code.co_filename:
            seen += 1
            if seen == moment:
                sys.setprofile(None)
                raise Stopped

    sys.setprofile(at_moment)
    try:
        ledger = Ledger(path)
        try:
            ledger._db.check()
            ledger.run_or_none()
        finally:
            ledger.close()
    except Stopped:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_nothing_is_said_when_it_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    Ledger.create(path).close()
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: said.append(repr(found.exc_value)))
    moment = 1
    while opened_until(path, moment):
        moment += 1
    gc.collect()
    assert moment > 20
    assert said == []
