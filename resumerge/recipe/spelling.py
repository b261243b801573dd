"""The known name that an unknown one is most like."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, or None where none is close."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``Did you mean 'x'?``, or an empty text where no known name is close."""
    found = closest(name, known)
    return f"Did you mean '{found}'?" if found else ""
