"""The pipe by which a worker tells its supervisor that it gets on."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

BEAT_SECONDS = 0.5
"""Least time between two beats."""


class HeartbeatPipe:
    """The worker's end. May be used by many threads; never blocks and never fails.

    A line is a JSON object with facts that the supervisor needs; an empty line is a beat: bytes
    were read, computed, written or downloaded since the last one.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._beaten = float("-inf")

    def heartbeat(self) -> None:
        """Work goes on. Cheap enough to be called for every block."""
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            self._write(b"\n")

    def tell(self, **facts: Any) -> None:
        """Facts for the supervisor, by name."""
        self._write(json.dumps(facts).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with suppress(OSError):  # the supervisor is gone, and this process is about to be
            os.write(self._fd, line)


class Listener:
    """The supervisor's end.

    Args:
        facts: everything that the worker told, the last of each name.
        speaks: whether the worker may say more.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.facts: dict[str, Any] = {}
        self.speaks = True
        self._rest = b""

    def hear(self) -> bool:
        """Take in what was said; whether anything was."""
        data = b""
        with suppress(BlockingIOError):
            while piece := os.read(self.fd, 65536):
                data += piece
            self.speaks = False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line:
                self.facts.update(json.loads(line))
        return bool(lines)

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self.fd)
