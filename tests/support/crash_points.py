"""At which of a run's operations the crash tests stop it."""

from __future__ import annotations

import re
from collections.abc import Sequence

EVERY = 10


def crash_points(kinds: Sequence[str], soak: bool) -> list[int]:
    """Numbers of operations, from 1.

    Args:
        kinds: what each operation is, like ``rename config.json``.
        soak: all of them; else the first and the last of every kind, shards and runs counted as
            one whatever their numbers, and every tenth operation.
    """
    alike = [re.sub(r"[0-9a-f]{8,}|\d+", "#", kind) for kind in kinds]
    first = {kind: number for number, kind in reversed([*enumerate(alike, 1)])}
    last = dict(zip(alike, range(1, len(alike) + 1)))
    rest = range(1, len(kinds) + 1, 1 if soak else EVERY)
    return sorted({*first.values(), *last.values(), *rest})
