"""Promise: a server of Google that keeps a part of a chunk makes an upload fail for now."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from resumerge.mirror.stores.base import StoreError
from resumerge.mirror.stores.buckets import google
from resumerge.mirror.stores.registry import open_store

UNIT = 1 << 18


class _Server(BaseHTTPRequestHandler):
    """A server that begins an upload, and keeps one unit of each chunk."""

    def do_GET(self) -> None:
        self._answer(404)

    def do_POST(self) -> None:
        self._answer(200, Location=f"http://{self.headers['Host']}/session")

    def do_PUT(self) -> None:
        self._answer(308, Range=f"bytes=0-{UNIT - 1}")

    def _answer(self, status: int, **headers: str) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = json.dumps({}).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_fails_for_now(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
    monkeypatch.setattr(google, "CHUNK", 4 * UNIT)
    path = tmp_path / "large"
    path.write_bytes(bytes(40 * UNIT))
    with pytest.raises(StoreError, match="kept a part") as error:
        open_store("gs://bucket/p").upload("model.safetensors", path, lambda nbytes: None)
    assert not error.value.denied
