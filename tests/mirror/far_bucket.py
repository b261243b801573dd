"""The requests that a process makes to a bucket: counted, watched, and ended by a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from typing import Any

from mirror_audit import check_mirror

from resumerge.mirror.stores.registry import open_store

INCONSISTENT = 99
"""Exit code of a process that found its mirror inconsistent."""

ABOUT_BUCKET = re.compile(r"/storage/v1/b/[^/]+$")
"""What Google's library asks for in a thread of its own, at any time, for those who watch it."""

STATES = ["empty", "unfinished", "finished"]


class FarBucket:
    """A counter of the requests to a bucket, which may kill its process at one of them.

    Args:
        url: the address of the mirror, which is audited after every request that may have changed
            it; empty for no audits.
        at: number of a request, from 1.
        mode: killed ``before`` it is sent, or ``after`` it was answered.
    """

    def __init__(self, *, url: str = "", at: int | None = None, mode: str = "before") -> None:
        self.url, self.at, self.mode = url, at, mode
        self.kinds: list[str] = []
        self.failed = self.checks = 0
        self._guard = threading.Lock()
        self._checking = threading.local()
        self._state = "empty"

    def install(self) -> None:
        """Count from now on."""
        from botocore.httpsession import URLLib3Session
        from requests.adapters import HTTPAdapter

        self._count(URLLib3Session)
        self._count(HTTPAdapter)  # of Google's and Azure's libraries

    def _count(self, session: Any) -> None:
        send = session.send

        def counted(pool: Any, request: Any, **settings: Any) -> Any:
            if getattr(self._checking, "on", False) or ABOUT_BUCKET.search(request.url):
                return send(pool, request, **settings)
            with self._guard:
                self.kinds.append(f"{request.method} {request.url}".split("?")[0])
                number = len(self.kinds)
            if number == self.at and self.mode == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = send(pool, request, **settings)
            if number == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.url and request.method in ("PUT", "POST", "DELETE"):
                self._check()
            return answer

        session.send = counted

    def _check(self) -> None:
        """Audit the mirror, and end the process if it is not consistent."""
        with self._guard:
            self._checking.on = True
            found = check_mirror(open_store(self.url))
            self._checking.on = False
            self.checks += 1
            back = STATES.index(found.state) < STATES.index(self._state)
            if back or not found.consistent:
                told = {"kinds": self.kinds[-20:], "problems": dict(found.problems)}
                print(json.dumps({**told, "before": self._state, "now": found.state}), flush=True)
                os._exit(INCONSISTENT)
            self._state = found.state
