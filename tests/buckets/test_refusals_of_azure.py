"""Promise: what Azure refuses for good is told with what to do; only our own conditions mean that
an object changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from resumerge.buckets.calls import open_bucket
from resumerge.buckets.errors import Changed, Conflict, Refused
from resumerge.errors import StoreError


class _Server(ThreadingHTTPServer):
    """Answers every request with `status` and the code of an error."""

    status, code = 409, ""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_HEAD(self) -> None:
        self.send_response(self.server.status)
        if self.server.code:
            self.send_header("x-ms-error-code", self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}/acme"
    text = f"BlobEndpoint={endpoint};AccountName=acme;AccountKey=c2VjcmV0"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def refusal(server: _Server, status: int, code: str) -> Exception:
    """What an answer to a request about a blob means."""
    server.status, server.code = status, code
    with pytest.raises(Exception) as error:
        open_bucket("az://box/m").nbytes("m/weights", "etag")
    return error.value


@pytest.mark.parametrize(
    "status, code, fix",
    [
        (409, "BlobArchived", "access tier"),
        (409, "BlobBeingRehydrated", "access tier"),
        (409, "BlobImmutableDueToPolicy", "immutability"),
        (409, "InvalidBlobType", "no block blob"),
        (409, "SnapshotsPresent", "snapshots"),
        (409, "PublicAccessNotPermitted", "AZURE_STORAGE_KEY"),
        (412, "LeaseIdMissing", "break the lease"),
        (412, "LeaseIdMismatchWithBlobOperation", "break the lease"),
    ],
)
def test_for_good(server: _Server, status: int, code: str, fix: str) -> None:
    error = refusal(server, status, code)
    assert isinstance(error, StoreError) and error.denied
    assert code in error.message and fix in error.fix


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (412, "ConditionNotMet", Changed),
        (412, "TargetConditionNotMet", Changed),
        (412, "", Changed),
        (409, "BlobAlreadyExists", Changed),
        (412, "SourceConditionNotMet", Refused),
        (409, "PendingCopyOperation", Conflict),
    ],
)
def test_for_now_or_changed(server: _Server, status: int, code: str, kind: type) -> None:
    error = refusal(server, status, code)
    assert type(error) is kind
    assert not getattr(error, "denied", False)
