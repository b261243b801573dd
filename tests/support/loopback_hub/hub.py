"""The Hub itself: what a test holds in its hand."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from allowance import Allowance
from waiting import HANGS_SECONDS

from loopback_hub.faults import Fault, Shaky
from loopback_hub.repos import LFS_SUFFIXES, Blob, Repo


@dataclass(frozen=True)
class Request:
    """One request as it was answered.

    Args:
        file: name of the repo's file; empty for the API.
        status: 0 where the connection was dropped without an answer.
        sent: bytes of the answer's body, as far as they were written.
        host: as the client named it; the CDN is ``localhost``, the Hub ``127.0.0.1``.
        received: bytes of the request's body, as far as they were read.
        headers: of the request.
    """

    method: str
    path: str
    file: str
    status: int
    sent: int
    host: str
    authorization: str | None
    received: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


class Hub:
    """Start with `start`, fill with `commit`, point a client at it with `settings`.

    Args:
        home: HF_HOME of its clients.
    """

    def __init__(self, home: Path) -> None:
        from loopback_hub.handler import Handler

        self.home = home
        self.repos: dict[str, Repo] = {}
        self.log: list[Request] = []
        self.answering = 0
        self.faults: list[Fault] = []
        self.shaky: Shaky | None = None
        """Draws faults for all requests."""
        self.gone = False
        """While True every connection is dropped without an answer."""
        self.ranges = True
        """False: range requests are answered with the whole file, as some mirrors do."""
        self.heeds_if_range = True
        """False: a range is answered with that range, whatever the file is by now."""
        self.xet = False
        """True: large files are said to be in Xet's store."""
        self.tokens: dict[str, str] | None = None
        """What each token may: ``read``, ``write``, or ``@NAME``: write NAME's repos, read public
        ones. None: whoever comes may do anything."""
        self.part_bytes: int | None = None
        """Files above this size are uploaded in parts of it."""
        self.regular_limit = 10_000_000
        """Bytes above which a file is a large one, whatever it is called."""
        self.binary_is_large = False
        """True: what does not look like text is a large file, too."""
        self.bytes_per_second: float | None = None
        """Of all bodies of files together."""
        self.allowance = Allowance()
        """Of all bodies of files together."""
        self.sent = 0
        """Bytes of all bodies so far, with those that are still being sent."""
        self.received = 0
        """Bytes of all uploads so far, with those that were cut off."""
        self.over = threading.Event()
        self.lock = threading.Condition()
        self.stored: dict[str, bytes] = {}
        """Large contents by their SHA-256, committed or not."""
        self.messages: list[str | None] = []
        """Those of all commits that were asked for, in order."""
        self.parts: dict[str, dict[int, bytes]] = {}
        """What has come of uploads in parts, by upload."""
        self._turn = threading.Lock()
        self._blobs: dict[str, tuple[str, Blob]] = {}
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self})
        )
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def cdn(self) -> str:
        return f"http://localhost:{self._server.server_port}/cdn"

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables for a client that starts afresh."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def env(self, **more: str) -> dict[str, str]:
        """The whole environment of a child process."""
        return {**os.environ, **self.settings, **more}

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def stop(self) -> None:
        self.over.set()
        self.allowance.give(None)
        self._server.shutdown()
        self._server.server_close()

    def commit(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Add a commit that holds exactly `files`, move the branch to it, return its id."""
        blobs = {name: Blob(data, name.endswith(LFS_SUFFIXES)) for name, data in files.items()}
        with self.lock:
            return self.keep(repo, self.repos.setdefault(repo, Repo()), blobs, branch)

    def keep(self, name: str, repo: Repo, blobs: dict[str, Blob], branch: str) -> str:
        """The same with contents; the lock is held."""
        for file, blob in blobs.items():
            self._blobs[blob.sha256] = (file, blob)
            if blob.lfs:
                self.stored[blob.sha256] = blob.data
        return repo.add(name, blobs, branch)

    def fail(
        self,
        match: str = "",
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        times: int | None = 1,
        **wrong: Any,
    ) -> None:
        """Make the next requests go wrong.

        Args:
            match: part of the path or of the file's name; empty matches everything.
            times: how often; None for ever.
            wrong: one or more of these.
                status: answer with this instead; `code` is its ``X-Error-Code``.
                cut_after: close the connection after so many bytes of the answer's body.
                stall_after: send no more after so many bytes, and keep the connection.
                wrong_byte: change the byte of the file at this place.
                short_by: leave out so many bytes at the end of the file, and say nothing of them.
                cut_upload: close the connection after so many bytes of the request's body.
                lose_answer: do as asked, then close the connection without an answer.
                says: headers that the answer has instead of its own; None for one that it lacks.
        """
        self.faults.append(Fault(match, method, times, headers or {}, **wrong))

    @property
    def requests(self) -> list[Request]:
        """What was asked and answered; waits for the answers that are still being sent."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.answering == 0, timeout=HANGS_SECONDS)
            return list(self.log)

    def files_served(self) -> dict[str, int]:
        """Bytes of bodies sent, by file; the API is not counted."""
        served: dict[str, int] = {}
        for request in self.requests:
            if request.file and request.sent:
                served[request.file] = served.get(request.file, 0) + request.sent
        return served

    def forget_requests(self) -> None:
        """Count from here."""
        if self.requests:
            self.log.clear()

    def pace(self, most: int) -> int:
        """Wait as long as they take, one connection after the other; return how many may go."""
        nbytes = self.allowance.take(most)
        if self.bytes_per_second:
            with self._turn:
                self.over.wait(nbytes / self.bytes_per_second)
        return nbytes

    def blob(self, sha256: str) -> tuple[str, Blob] | None:
        return self._blobs.get(sha256)

    def blob_of(self, repo: str, name: str) -> Blob:
        """A file of a repo's main branch."""
        return self.repos[repo].files()[name]

    def contents(self, repo: str) -> dict[str, bytes]:
        """All files of a repo's main branch but the Hub's own .gitattributes."""
        files = self.repos[repo].files()
        return {name: blob.data for name, blob in files.items() if name != ".gitattributes"}

    def fault_for(self, method: str, path: str, file: str, kind: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.applies(method, path, file, kind):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None
