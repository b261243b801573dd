"""A Hub on the loopback interface, good enough for huggingface_hub's own client.

It keeps repos with several commits and branches, redirects large files to a second host name as
the real one redirects to its CDN, answers range requests, counts every byte of every file, and
misbehaves on request (`Hub.fail`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LFS_SUFFIXES = (".safetensors", ".bin", ".onnx", ".gguf")
CHUNK = 1 << 14
SEND_BUFFER = 1 << 15
"""Bytes in the kernel: what it holds for a client that was killed counts as sent."""

STALL_SECONDS = 20.0


@dataclass(frozen=True)
class Blob:
    """The content of one file, and its names on the Hub."""

    data: bytes
    lfs: bool

    @cached_property
    def blob_id(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.blob_id

    @cached_property
    def cdn_etag(self) -> str:
        """What the CDN calls it: another name, as in life."""
        return hashlib.md5(self.data).hexdigest()


@dataclass
class Repo:
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One request as it was answered.

    Args:
        file: name of the repo's file; empty for the API.
        status: 0 where the connection was dropped without an answer.
        sent: bytes of the body, as far as they were written.
        host: as the client named it; the CDN is ``localhost``, the Hub ``127.0.0.1``.
    """

    method: str
    path: str
    file: str
    status: int
    sent: int
    host: str
    authorization: str | None


@dataclass
class Fault:
    """What to do wrong, and how often; see `Hub.fail`."""

    match: str
    method: str | None
    status: int | None
    code: str | None
    headers: dict[str, str]
    cut_after: int | None
    stall_after: int | None
    wrong_byte: int | None
    short_by: int | None
    times: int | None


class Hub:
    """Start with `start`, fill with `commit`, point a client at it with `settings`.

    Args:
        home: HF_HOME of its clients.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.repos: dict[str, Repo] = {}
        self.log: list[Request] = []
        self.answering = 0
        self.faults: list[Fault] = []
        self.gone = False
        """While True every connection is dropped without an answer."""
        self.ranges = True
        """False: range requests are answered with the whole file, as some mirrors do."""
        self.xet = False
        """True: large files are said to be in Xet's store."""
        self.bytes_per_second: float | None = None
        """Of all bodies of files together."""
        self.sent = 0
        """Bytes of all bodies so far, with those that are still being sent."""
        self.over = threading.Event()
        self.lock = threading.Condition()
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
        self._server.shutdown()
        self._server.server_close()

    def commit(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Add a commit that holds exactly `files`, move the branch to it, return its id."""
        store = self.repos.setdefault(repo, Repo())
        blobs = {name: Blob(data, name.endswith(LFS_SUFFIXES)) for name, data in files.items()}
        for name, blob in blobs.items():
            self._blobs[blob.sha256] = (name, blob)
        text = json.dumps([repo, len(store.commits), {n: b.etag for n, b in blobs.items()}])
        commit = hashlib.sha1(text.encode()).hexdigest()
        store.commits[commit] = blobs
        store.branches[branch] = commit
        return commit

    def fail(
        self,
        match: str = "",
        *,
        method: str | None = None,
        status: int | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        cut_after: int | None = None,
        stall_after: int | None = None,
        wrong_byte: int | None = None,
        short_by: int | None = None,
        times: int | None = 1,
    ) -> None:
        """Make the next requests go wrong.

        Args:
            match: part of the path or of the file's name; empty matches everything.
            status: answer with this instead; `code` is its ``X-Error-Code``.
            cut_after: close the connection after so many bytes of the body.
            stall_after: send no more after so many bytes, and keep the connection.
            wrong_byte: change the byte of the file at this place.
            short_by: leave out so many bytes at the end of the file, and say nothing of them.
            times: how often; None for ever.
        """
        fault = Fault(
            match,
            method,
            status,
            code,
            headers or {},
            cut_after,
            stall_after,
            wrong_byte,
            short_by,
            times,
        )
        self.faults.append(fault)

    @property
    def requests(self) -> list[Request]:
        """What was asked and answered; waits for the answers that are still being sent."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.answering == 0, timeout=20)
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

    def pace(self, nbytes: int) -> None:
        """Take the time that so many bytes take; one connection after the other."""
        if self.bytes_per_second:
            with self._turn:
                self.over.wait(nbytes / self.bytes_per_second)

    def blob(self, sha256: str) -> tuple[str, Blob] | None:
        return self._blobs.get(sha256)

    def blob_of(self, repo: str, name: str) -> Blob:
        """A file of a repo's main branch."""
        store = self.repos[repo]
        return store.commits[store.branches["main"]][name]

    def fault_for(self, method: str, path: str, file: str, kind: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                applies = fault.method in (None, method) and (
                    fault.match in path or fault.match in file
                )
                if applies and fault.times != 0 and getattr(fault, kind) is not None:
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        super().setup()

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that was killed
            super().handle()

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.sent, self.status, self.file = 0, 0, ""
        with self.hub.lock:
            self.hub.answering += 1
        try:
            if self.hub.gone:
                self.close_connection = True
            else:
                self.route()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.log_it()

    def route(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            repo, verb, revision = match.groups()
            self.api(repo, verb or "revision", revision, "blobs" in parse_qs(url.query))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+|refs/pr/\d+)/(.+)", path):
            self.resolve(*match.groups())
        elif match := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
            self.content(match[1])
        else:
            self.refuse(404)

    def find(self, repo: str, revision: str | None) -> tuple[str, dict[str, Blob]] | None:
        """The commit and its files, or None after an error was sent."""
        if fault := self.hub.fault_for(self.command, self.path, self.file, "status"):
            self.refuse(fault.status or 500, fault.code, fault.headers)
            return None
        store = self.hub.repos.get(repo)
        if store is None:
            self.refuse(404, "RepoNotFound")
            return None
        commit = store.branches.get(revision or "main", revision or "main")
        if commit not in store.commits:
            self.refuse(404, "RevisionNotFound")
            return None
        return commit, store.commits[commit]

    def api(self, repo: str, verb: str, revision: str | None, blobs: bool) -> None:
        if not (found := self.find(repo, revision)):
            return
        commit, files = found
        body: Any
        if verb == "tree":
            body = [
                {"type": "file", "path": name, "size": len(blob.data), "oid": blob.blob_id}
                | ({"lfs": self.lfs(blob) | {"oid": blob.sha256}} if blob.lfs else {})
                for name, blob in files.items()
            ]
        else:
            details = {
                name: {"blobId": blob.blob_id, "size": len(blob.data)}
                | ({"lfs": self.lfs(blob)} if blob.lfs else {})
                for name, blob in files.items()
            }
            body = {
                "id": repo,
                "modelId": repo,
                "sha": commit,
                "private": False,
                "gated": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": [
                    {"rfilename": name} | (details[name] if blobs else {}) for name in files
                ],
            }
        text = json.dumps(body).encode()
        self.headed(200, {"Content-Type": "application/json"}, len(text))
        self.body(text)

    def lfs(self, blob: Blob) -> dict[str, Any]:
        return {"sha256": blob.sha256, "size": len(blob.data), "pointerSize": 134}

    def resolve(self, repo: str, revision: str, name: str) -> None:
        self.file = name
        if not (found := self.find(repo, revision)):
            return
        commit, files = found
        if name not in files:
            self.refuse(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        blob = files[name]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{blob.etag}"', "Accept-Ranges": "bytes"}
        if blob.lfs and self.hub.xet:
            headers["X-Xet-Hash"] = blob.sha256
            headers["X-Xet-Refresh-Route"] = f"{self.hub.url}/api/xet/token"
        if blob.lfs:
            self.headed(
                302,
                headers
                | {
                    "Location": f"{self.hub.cdn}/{blob.sha256}?Signature=secret",
                    "X-Linked-Size": str(len(blob.data)),
                    "X-Linked-ETag": f'"{blob.sha256}"',
                },
                0,
            )
        else:
            self.ranged(blob.data, headers)

    def content(self, sha256: str) -> None:
        found = self.hub.blob(sha256)
        if found is None:
            self.refuse(404)
            return
        self.file, blob = found
        if fault := self.hub.fault_for(self.command, self.path, self.file, "status"):
            self.refuse(fault.status or 500, fault.code, fault.headers)
            return
        self.ranged(blob.data, {"ETag": f'"{blob.cdn_etag}"', "Accept-Ranges": "bytes"})

    def ranged(self, data: bytes, headers: dict[str, str]) -> None:
        if fault := self.hub.fault_for(self.command, self.path, self.file, "wrong_byte"):
            at = fault.wrong_byte or 0
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if fault := self.hub.fault_for(self.command, self.path, self.file, "short_by"):
            data = data[: -(fault.short_by or 0)]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        same = self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
        if wanted is None or not self.hub.ranges or not same:
            self.headed(200, headers, len(data))
            self.body(data)
            return
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        if first > last:
            self.refuse(416, None, {"Content-Range": f"bytes */{len(data)}"})
            return
        content_range = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.headed(206, headers | content_range, last + 1 - first)
        self.body(data[first : last + 1])

    def refuse(
        self, status: int, code: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        named = {"X-Error-Code": code} if code else {}
        self.headed(status, named | (headers or {}), 0)

    def headed(self, status: int, headers: dict[str, str], length: int) -> None:
        self.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def body(self, data: bytes) -> None:
        if self.command == "HEAD":
            return
        fault = self.hub.fault_for(self.command, self.path, self.file, "cut_after")
        stop = len(data) if fault is None else min(fault.cut_after or 0, len(data))
        stall = self.hub.fault_for(self.command, self.path, self.file, "stall_after")
        if stall is not None:
            stop = min(stall.stall_after or 0, len(data))
        view = memoryview(data)
        for start in range(0, stop, CHUNK):
            self.hub.pace(min(CHUNK, stop - start) if self.file else 0)
            self.wfile.write(view[start : min(start + CHUNK, stop)])
            self.sent = min(start + CHUNK, stop)
            self.hub.sent += min(CHUNK, stop - start)
        if stall is not None:
            self.hub.over.wait(STALL_SECONDS)
        if fault is not None or stall is not None:
            self.close_connection = True

    def log_it(self) -> None:
        host = self.headers.get("Host", "").split(":")[0]
        authorization = self.headers.get("Authorization")
        with self.hub.lock:
            self.hub.log.append(
                Request(
                    self.command, self.path, self.file, self.status, self.sent, host, authorization
                )
            )
            self.hub.answering -= 1
            self.hub.lock.notify_all()

    def log_message(self, format: str, *args: Any) -> None: ...
