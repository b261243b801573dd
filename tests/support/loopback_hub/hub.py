"""The Hub itself, which a test starts, fills and controls."""

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
    """A request and what is known of its answer.

    Args:
        file: the name of the repo's file; empty for the API.
        status: the answer's status; 0 if the connection was dropped without an answer.
        sent: the bytes of the answer's body that were written.
        host: the host as the client named it; the CDN is ``localhost``, the Hub ``127.0.0.1``.
        received: the bytes of the request's body that were read.
        headers: the headers of the request.
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
    """A Hub: `start` starts it, `commit` fills it, `settings` direct a client to it.

    Args:
        home: the HF_HOME of its clients.
    """

    def __init__(self, home: Path) -> None:
        from loopback_hub.handler import Handler

        self.home = home
        self.repos: dict[str, Repo] = {}
        self.log: list[Request] = []
        self.answering = 0
        self.faults: list[Fault] = []
        self.shaky: Shaky | None = None
        """The source of random faults for all requests."""
        self.gone = False
        """Whether every connection is dropped without an answer."""
        self.ranges = True
        """Whether ranges are answered; else the answer is the whole file, as from some mirrors."""
        self.heeds_if_range = True
        """Whether a range of a file that has changed is answered with the whole file."""
        self.xet = False
        """Whether answers report that large files are in Xet's store."""
        self.tokens: dict[str, str] | None = None
        """The permission of each token: ``read``, ``write``, or ``@NAME``: write NAME's repos, read
        public ones. None: every client may do anything."""
        self.part_bytes: int | None = None
        """The size above which files are uploaded in parts of it."""
        self.regular_limit = 10_000_000
        """The bytes above which a file is a large one, whatever its name is."""
        self.binary_is_large = False
        """Whether a file that does not look like text is a large file, too."""
        self.bytes_per_second: float | None = None
        """The rate of all bodies of files together."""
        self.allowance = Allowance()
        """The limit of all bodies of files together."""
        self.sent = 0
        """The bytes of all bodies so far, with those that are still being sent."""
        self.received = 0
        """The bytes of all uploads so far, with those that were cut off."""
        self.over = threading.Event()
        self.lock = threading.Condition()
        self.stored: dict[str, bytes] = {}
        """Large contents by their SHA-256, committed or not."""
        self.messages: list[str | None] = []
        """The messages of all commits that were requested, in order."""
        self.parts: dict[str, dict[int, bytes]] = {}
        """The parts that have arrived, by upload."""
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
        """The environment variables of a new client process."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def env(self, **more: str) -> dict[str, str]:
        """Return the whole environment of a child process."""
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
        """Add a commit of exactly `files`, move the branch to it, and return its id."""
        blobs = {name: Blob(data, name.endswith(LFS_SUFFIXES)) for name, data in files.items()}
        with self.lock:
            return self.keep(repo, self.repos.setdefault(repo, Repo()), blobs, branch)

    def keep(self, name: str, repo: Repo, blobs: dict[str, Blob], branch: str) -> str:
        """Add a commit of exactly `blobs`, as `commit` does; the caller holds the lock."""
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
        """Have the next requests fail.

        Args:
            match: a part of the path or of the file's name; empty matches everything.
            method: the method of the requests; None for all.
            headers: further headers of an answer with `status`.
            times: the number of these requests; None for all.
            wrong: one or more of these faults.
                status: answer with this instead; `code` is its ``X-Error-Code``.
                cut_after: close the connection after so many bytes of the answer's body.
                stall_after: send no more after so many bytes, and keep the connection.
                wrong_byte: change the byte of the file at this place.
                short_by: leave out the file's last bytes, so many, and state the shorter length.
                cut_upload: close the connection after so many bytes of the request's body.
                lose_answer: do the request, then close the connection without an answer.
                says: headers that the answer has instead of its own; None for one that it lacks.
        """
        self.faults.append(Fault(match, method, times, headers or {}, **wrong))

    @property
    def requests(self) -> list[Request]:
        """All requests so far, after a wait for the answers that are still being sent."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.answering == 0, timeout=HANGS_SECONDS)
            return list(self.log)

    def files_served(self) -> dict[str, int]:
        """Return the bytes of bodies sent, by file; the API is not counted."""
        served: dict[str, int] = {}
        for request in self.requests:
            if request.file and request.sent:
                served[request.file] = served.get(request.file, 0) + request.sent
        return served

    def forget_requests(self) -> None:
        """Forget all requests so far."""
        if self.requests:
            self.log.clear()

    def pace(self, most: int) -> int:
        """Wait for the time of some bytes, one connection after the other; return their number."""
        nbytes = self.allowance.take(most)
        if self.bytes_per_second:
            with self._turn:
                self.over.wait(nbytes / self.bytes_per_second)
        return nbytes

    def blob(self, sha256: str) -> tuple[str, Blob] | None:
        return self._blobs.get(sha256)

    def blob_of(self, repo: str, name: str) -> Blob:
        """Return a file of a repo's main branch."""
        return self.repos[repo].files()[name]

    def contents(self, repo: str) -> dict[str, bytes]:
        """Return all files of a repo's main branch except the Hub's own .gitattributes."""
        files = self.repos[repo].files()
        return {name: blob.data for name, blob in files.items() if name != ".gitattributes"}

    def fault_for(self, method: str, path: str, file: str, kind: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.applies(method, path, file, kind):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None
