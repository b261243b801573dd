"""The heartbeat pipe, by which a worker reports progress to its supervisor."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

HEARTBEAT_SECONDS = 0.5
"""The least number of seconds between two heartbeats."""


class HeartbeatPipe:
    """The worker's end of the pipe. Several threads may use it. Writing never blocks or fails.

    A line is a JSON object with facts for the supervisor, or empty. An empty line is a heartbeat:
    it means that bytes were read, computed, written or downloaded since the last heartbeat.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._sent = self._printed = float("-inf")

    def heartbeat(self) -> None:
        """Report progress. The call is cheap enough for every block."""
        if time.monotonic() - self._sent >= HEARTBEAT_SECONDS:
            self._sent = time.monotonic()
            self._write(b"\n")

    def printed(self) -> None:
        """Report that the worker printed text. This does not count as progress."""
        if time.monotonic() - self._printed >= HEARTBEAT_SECONDS:
            self._printed = time.monotonic()
            self.tell(printed_at=self._printed)

    def tell(self, **facts: Any) -> None:
        """Send facts to the supervisor, by name."""
        self._write(json.dumps(facts).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with suppress(OSError):  # the pipe is full, or the supervisor is dead
            os.write(self._fd, line)


class Listener:
    """The supervisor's end of the pipe.

    Args:
        facts: the latest value of each fact that the worker sent, by name.
        is_open: whether the worker can send more.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.facts: dict[str, Any] = {}
        self.is_open = True
        self._rest = b""

    def receive(self) -> bool:
        """Read the lines that have arrived, and return whether one of them is progress."""
        received_bytes = b""
        with suppress(BlockingIOError):
            while piece := os.read(self.fd, 65536):
                received_bytes += piece
            self.is_open = False
        *lines, self._rest = (self._rest + received_bytes).split(b"\n")
        messages = [json.loads(line) if line else {} for line in lines]
        for message in messages:
            self.facts.update(message)
        return any("printed_at" not in message for message in messages)

    def close(self) -> None:
        """Close this end of the pipe."""
        os.close(self.fd)
