"""A proxy before a server, which causes faults at random or as a test chooses."""

from __future__ import annotations

import http.client
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from allowance import Allowance
from waiting import HANGS_SECONDS

KINDS = ("503", "429", "cut", "cut answer", "lost", "slow")
"""The faults that are drawn.

``cut``: the connection ends within the request; ``cut answer``: within the answer; ``lost``: the
request is passed on, but not answered; ``slow``: the answer is late. Only if chosen: ``403``, and
``held``, which is neither passed on nor answered.
"""

PIECE = 1 << 14
"""The most bytes of a body that are sent at once."""

HOP = {"connection", "transfer-encoding", "keep-alive"}
Choose = Callable[[str, str], str | None]
"""A function of a request's method and path that returns its fault, or None."""


class Proxy:
    """A proxy that passes requests on to a server.

    Attributes:
        endpoint: its address.
        choose: see `Choose`.
        drops: headers of requests, in lower case, that are not passed on.
        requests: method and path of each.
        wrong: how often each kind of fault happened.
        sent: bytes of the bodies of answers to GET, by path without its query.
        allowance: the limit of the bodies of answers to GET, all together.
        connections: the number of open connections.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.choose: Choose = lambda method, path: None
        self.drops: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.wrong: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.allowance = Allowance()
        self.connections = 0
        self._guard, self._over = threading.Lock(), threading.Event()
        self.endpoint = ""

    def shake(self, seed: int, share: float) -> None:
        """Have a share of all requests fail."""
        draw, guard = random.Random(seed), threading.Lock()

        def choose(method: str, path: str) -> str | None:
            with guard:
                return draw.choice(KINDS) if draw.random() < share else None

        self.choose = choose

    def once(self, kind: str, method: str, part: str) -> None:
        """Have the next request fail that has this method and part of a path."""
        left = [kind]

        def choose(called: str, path: str) -> str | None:
            return left.pop() if left and called == method and part in path else None

        self.choose = choose

    def hold(self, method: str, part: str) -> None:
        """Answer no request that has this method and part of a path."""
        self.choose = lambda called, path: "held" if called == method and part in path else None

    def stand_still(self, connection: socket.socket) -> None:
        """Wait until a client has closed its connection, or for the end of the proxy."""
        while not self._over.is_set():
            if select.select([connection], [], [], 0.05)[0]:
                assert not connection.recv(1, socket.MSG_PEEK), "a request before the answer"
                return

    def count(self, connections: int) -> None:
        """Count connections that are opened, or closed."""
        with self._guard:
            self.connections += connections

    def end(self) -> None:
        """Let all waiting requests continue."""
        self._over.set()
        self.allowance.give(None)

    def send(self, write: Callable[[bytes], object], path: str, data: bytes) -> None:
        """Send a body, and count its pieces."""
        sent = 0
        while sent < len(data):
            nbytes = self.allowance.take(min(PIECE, len(data) - sent))
            with self._guard:  # before the client has them: a test may read this at once
                self.sent[path.partition("?")[0]] += nbytes
            write(data[sent : sent + nbytes])
            sent += nbytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def log_message(self, *words: object) -> None:
        """Log nothing."""

    def _hand_on(self) -> None:
        proxy = self.proxy
        proxy.requests.append((self.command, self.path))
        kind = proxy.choose(self.command, self.path)
        if kind is not None:
            proxy.wrong[kind] += 1
        length = int(self.headers.get("content-length", 0))
        if kind == "cut":
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if kind == "held":
            self.close_connection = True
            proxy.stand_still(self.connection)
            return
        if kind in ("503", "429", "403"):
            self.send_response(int(kind))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        upstream = http.client.HTTPConnection(proxy.upstream, timeout=HANGS_SECONDS)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP | proxy.drops | {"expect"}:
                upstream.putheader(name, value)
        upstream.endheaders(body or None)
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if kind == "lost":
            self.close_connection = True
            return
        if kind == "slow":
            time.sleep(0.3)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP | {"date", "server", "content-length"}:
                self.send_header(name, value)
        shown = answer.getheader("content-length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", shown or "0")
        self.end_headers()
        if kind == "cut answer":
            data, self.close_connection = data[: len(data) // 2], True
        if self.command == "GET":
            proxy.send(self.wfile.write, self.path, data)
        else:
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _hand_on


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy

    def process_request(self, request: Any, client_address: Any) -> None:
        self.proxy.count(1)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.proxy.count(-1)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: the client was killed, or has given up."""


@contextmanager
def before(upstream: str) -> Iterator[Proxy]:
    """Yield a proxy before a server."""
    proxy = Proxy(upstream)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    server = _QuietServer(("127.0.0.1", 0), handler)
    server.proxy = proxy
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.end()
        server.shutdown()
        server.server_close()
