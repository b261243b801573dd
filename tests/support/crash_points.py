"""The operations of a run at which the crash tests stop it."""

from __future__ import annotations

import re
from collections.abc import Sequence

EVERY = 10


def crash_points(kinds: Sequence[str], soak: bool) -> list[int]:
    """Return the numbers of the operations at which to stop, counted from 1.

    Args:
        kinds: the kind of each operation, such as ``rename config.json``.
        soak: whether to return all; else the first and the last of every kind, with shards and
            runs of all numbers as one kind, and every tenth operation.
    """
    alike = [re.sub(r"[0-9a-f]{8,}|\d+", "#", kind) for kind in kinds]
    first = {kind: number for number, kind in reversed([*enumerate(alike, 1)])}
    last = dict(zip(alike, range(1, len(alike) + 1)))
    rest = range(1, len(kinds) + 1, 1 if soak else EVERY)
    return sorted({*first.values(), *last.values(), *rest})
