"""Requests and answers: permissions, the log, and faults."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopback_hub.hub import Hub

CHUNK = 1 << 14
SEND_BUFFER = 1 << 15
"""The bytes of the kernel's buffer: those for a client that was killed count as sent."""

STALL_SECONDS = 600.0
"""A time that ends only what hangs: a client has to abandon a server that stalls."""


class Exchange(BaseHTTPRequestHandler):
    """A connection, whose requests `route` answers."""

    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or headers and body of an answer wait for each other, 40 ms

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

    def do_POST(self) -> None:
        self.answer()

    def do_PUT(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.sent, self.status, self.file, self.received, self.mute = 0, 0, "", 0, False
        with self.hub.lock:
            self.hub.answering += 1
        try:
            if self.hub.gone:
                self.close_connection = True
            elif not self.shakes():
                self.route()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.log_it()

    def shakes(self) -> bool:
        """Draw a fault for this request, and return whether the fault has ended the request."""
        with self.hub.lock:
            wrong = self.hub.shaky.draw(self.path) if self.hub.shaky else None
        if wrong == "lost":
            self.mute = True
        elif wrong == "cut":
            self.read_body(cut=self.length() // 2)
            self.close_connection = True
        elif wrong is not None:
            self.read_body()
            self.refuse(int(wrong), None, {"Retry-After": "1"} if wrong == "429" else {})
        return wrong not in (None, "lost")

    def route(self) -> None:
        raise NotImplementedError

    def may(self, what: str, repo: str | None = None) -> bool:
        """Return whether the request's token allows it; if not, send an error."""
        if self.hub.tokens is None:
            return True
        given, allowed = self.token()
        if self.permits(what, repo):
            return True
        if allowed is None:
            self.refuse(401, None if given or repo is None else "RepoNotFound")
        else:
            self.refuse(403)
        return False

    def token(self) -> tuple[str, str | None]:
        """Return the request's token, and the token's permission."""
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        return given, (self.hub.tokens or {}).get(given)

    def permits(self, what: str, repo: str | None = None) -> bool:
        """Return whether the request's token allows it."""
        if self.hub.tokens is None:
            return True
        given, allowed = self.token()
        known = self.hub.repos.get(repo or "")
        is_public = known is not None and not known.private
        if allowed is not None and allowed.startswith("@"):
            own = repo is not None and repo.startswith(f"{allowed[1:]}/")
            return own or (what == "read" and is_public)
        return allowed in ("write", what) or (what == "read" and is_public and not given)

    def refuse(
        self,
        status: int,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        message: str = "",
    ) -> None:
        named = {"X-Error-Code": code} if code else {}
        text = json.dumps({"error": message}).encode() if message else b""
        self.headed(status, named | (headers or {}), len(text))
        if text and self.command != "HEAD" and not self.mute:
            self.wfile.write(text)

    def headed(self, status: int, headers: dict[str, str], length: int) -> None:
        lost = self.hub.fault_for(self.command, self.path, self.file, "lose_answer")
        if self.mute or lost is not None:
            self.mute = self.close_connection = True
            return
        self.status = status
        self.send_response(status)
        wrong = self.hub.fault_for(self.command, self.path, self.file, "says")
        for name, value in (headers | ((wrong.says or {}) if wrong else {})).items():
            if value is not None:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def json(self, body: Any, status: int = 200) -> None:
        text = json.dumps(body).encode()
        self.headed(status, {"Content-Type": "application/json"}, len(text))
        self.body(text)

    def body(self, data: bytes) -> None:
        if self.command == "HEAD" or self.mute:
            return
        fault = self.hub.fault_for(self.command, self.path, self.file, "cut_after")
        stop = len(data) if fault is None else min(fault.cut_after or 0, len(data))
        stall = self.hub.fault_for(self.command, self.path, self.file, "stall_after")
        if stall is not None:
            stop = min(stall.stall_after or 0, len(data))
        view = memoryview(data)
        while self.sent < stop:
            nbytes = self.pace(min(CHUNK, stop - self.sent))
            self.wfile.write(view[self.sent : self.sent + nbytes])
            self.sent += nbytes
            self.hub.sent += nbytes
        if stall is not None:
            self.hub.over.wait(STALL_SECONDS)
        if fault is not None or stall is not None:
            self.close_connection = True

    def pace(self, most: int) -> int:
        """Wait until bytes of a file may be moved; return how many. Other bytes need not wait."""
        return self.hub.pace(most) if self.file else most

    def length(self) -> int:
        """Return the number of bytes of the request's body."""
        return int(self.headers.get("Content-Length") or 0)

    def read_body(self, keep: bool = False, cut: int | None = None) -> bytes | None:
        """Read the request's body, counted and at the Hub's pace.

        Args:
            keep: whether to return it.
            cut: the number of bytes after which to close the connection.

        Returns:
            The body if it is kept, else no bytes; None if the connection closed before its end.
        """
        total, pieces = self.length(), []
        stop = total if cut is None else min(cut, total)
        while self.received < stop:
            piece = self.rfile.read(self.pace(min(CHUNK, stop - self.received)))
            if not piece:
                break
            self.received += len(piece)
            self.hub.received += len(piece) if self.file else 0
            pieces += [piece] if keep else []
        if self.received < total:
            self.close_connection = True
            return None
        return b"".join(pieces)

    def log_it(self) -> None:
        from loopback_hub.hub import Request

        host = self.headers.get("Host", "").split(":")[0]
        authorization = self.headers.get("Authorization")
        with self.hub.lock:
            self.hub.log.append(
                Request(
                    self.command,
                    self.path,
                    self.file,
                    self.status,
                    self.sent,
                    host,
                    authorization,
                    self.received,
                    dict(self.headers),
                )
            )
            self.hub.answering -= 1
            self.hub.lock.notify_all()

    def log_message(self, format: str, *args: Any) -> None: ...
