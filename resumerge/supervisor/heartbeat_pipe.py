"""The heartbeat pipe: a worker reports progress to its supervisor."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

HEARTBEAT_SECONDS = 0.5
"""Least time between two heartbeats."""


class HeartbeatPipe:
    """The worker's end of the pipe. Many threads may use it; it never blocks and never fails.

    A line is a JSON object with facts for the supervisor. An empty line is a heartbeat: bytes were
    read, computed, written or downloaded since the last one.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._sent = self._printed = float("-inf")

    def heartbeat(self) -> None:
        """Report progress. This is cheap enough to be called for every block."""
        if time.monotonic() - self._sent >= HEARTBEAT_SECONDS:
            self._sent = time.monotonic()
            self._write(b"\n")

    def printed(self) -> None:
        """Report that the worker printed something, which is not progress."""
        if time.monotonic() - self._printed >= HEARTBEAT_SECONDS:
            self._printed = time.monotonic()
            self.tell(printed_at=self._printed)

    def tell(self, **facts: Any) -> None:
        """Send facts to the supervisor, by name."""
        self._write(json.dumps(facts).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with suppress(OSError):  # the supervisor is dead, and this process will be killed
            os.write(self._fd, line)


class Listener:
    """The supervisor's end of the pipe.

    Args:
        facts: the last value of each fact that the worker sent, by name.
        is_open: whether the worker may send more.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.facts: dict[str, Any] = {}
        self.is_open = True
        self._rest = b""

    def receive(self) -> bool:
        """Read what arrived, and return whether any of it is progress."""
        data = b""
        with suppress(BlockingIOError):
            while piece := os.read(self.fd, 65536):
                data += piece
            self.is_open = False
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [json.loads(line) if line else {} for line in lines]
        for message in messages:
            self.facts.update(message)
        return any("printed_at" not in message for message in messages)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.fd)
