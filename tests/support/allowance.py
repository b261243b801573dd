"""A limit of the bytes that a test's server may send or receive: after the last byte it waits."""

from __future__ import annotations

import threading


class Allowance:
    """The number of bytes that all connections together may still move; at first without a limit.

    A transfer stays in the middle until a test has acted there, however busy the machine is.
    """

    def __init__(self) -> None:
        self._left: int | None = None
        self._changed = threading.Condition()

    def give(self, nbytes: int | None) -> None:
        """Set how many bytes may be moved from now on; None for all."""
        with self._changed:
            self._left = nbytes
            self._changed.notify_all()

    def take(self, most: int) -> int:
        """Wait until a byte may be moved; return how many may be moved, at most `most`."""
        with self._changed:
            self._changed.wait_for(lambda: self._left is None or self._left > 0)
            if self._left is None:
                return most
            taken = min(most, self._left)
            self._left -= taken
            return taken

    def is_spent(self) -> bool:
        """Return whether no further byte may be moved."""
        return self._left == 0
