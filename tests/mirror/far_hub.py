"""The requests that a process makes to the Hub: counted, and the process killed at one of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any


class FarHub:
    """A counter of the requests to the Hub, and to the store of large files among them.

    Args:
        at: number of a request, from 1.
        mode: killed ``before`` it is sent, or ``after`` it was answered.
    """

    def __init__(self, *, at: int | None = None, mode: str = "before") -> None:
        self.at, self.mode = at, mode
        self.kinds: list[str] = []
        self.failed = self.checks = 0
        self._guard = threading.Lock()

    def install(self) -> None:
        """Count from now on, and shorten every pause to a tenth of a second."""
        from huggingface_hub.utils import get_session

        client: Any = type(get_session())
        send, sleep = client.send, time.sleep

        def counted(session: Any, request: Any, **more: Any) -> Any:
            with self._guard:
                self.kinds.append(f"{request.method} {request.url}".split("?")[0])
                number = len(self.kinds)
            if number == self.at and self.mode == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = send(session, request, **more)
            if number == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        client.send = counted
        time.sleep = lambda seconds: sleep(min(seconds, 0.1))
