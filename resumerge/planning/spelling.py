"""The nearest known name to one that was not found."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or nothing where no name is near."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found else ""
