"""What a server of a test may send or receive: at the last byte it stands still."""

from __future__ import annotations

import threading


class Allowance:
    """Bytes that connections may still move, all together. At first there is no bound.

    What a test does in the middle of a transfer then happens in the middle, however busy the
    machine is.
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
        """Wait until a byte may be moved; return how many may, at most so many."""
        with self._changed:
            self._changed.wait_for(lambda: self._left is None or self._left > 0)
            if self._left is None:
                return most
            taken = min(most, self._left)
            self._left -= taken
            return taken

    def is_spent(self) -> bool:
        """Return whether everything stands still."""
        return self._left == 0
