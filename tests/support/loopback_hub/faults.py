"""Faults of the Hub: at the next requests that match, or at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Fault:
    """A fault and how often it happens; see `Hub.fail`."""

    match: str
    method: str | None
    times: int | None
    headers: dict[str, str]
    code: str | None = None
    status: int | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    wrong_byte: int | None = None
    short_by: int | None = None
    cut_upload: int | None = None
    lose_answer: bool | None = None
    says: dict[str, str | None] | None = None

    def applies(self, method: str, path: str, file: str, kind: str) -> bool:
        """Return whether this fault is of a kind and matches a request."""
        right = self.method in (None, method) and (self.match in path or self.match in file)
        return right and self.times != 0 and getattr(self, kind) is not None


KINDS = ("500", "503", "429", "cut", "lost")
"""The kinds of random faults.

``cut``: the connection ends within the request; ``lost``: the request is done, but not answered.
"""


class Shaky:
    """A source of random faults.

    Args:
        seed: the seed, which makes the same draws for the same requests in the same order.
        share: the share of requests that fail.
        kinds: the kinds of which one is drawn.
        match: a part of the paths that may fail.
    """

    def __init__(
        self, seed: int, share: float, kinds: Sequence[str] = KINDS, match: str = ""
    ) -> None:
        self.share, self.kinds, self.match = share, kinds, match
        self.drawn: list[str] = []
        self._draw = random.Random(seed)

    def draw(self, path: str) -> str | None:
        """Draw the fault of a request; None if it has none."""
        if self.match not in path or self._draw.random() >= self.share:
            return None
        self.drawn.append(self._draw.choice(self.kinds))
        return self.drawn[-1]
