"""Promise: a server or proxy that answers anything else than its protocol stops a run for now, with
that answer, in every cloud; it does not count as a bug, an object or an empty bucket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from resumerge.buckets import google
from resumerge.buckets.base import Bucket, Listed
from resumerge.buckets.calls import explain_bucket_error, open_bucket
from resumerge.buckets.errors import Advice, Changed, refusal
from resumerge.errors import Resumable, StoreError

PAGE = {"Content-Type": "text/html"}
XML = {"Content-Type": "application/xml"}
JSON = {"Content-Type": "application/json"}


def listing(entry: str) -> bytes:
    text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry}</ListBucketResult>"
    return text.encode()


Answer = tuple[int, dict[str, str], bytes]

ANSWERS: dict[str, Answer] = {
    "elsewhere": (302, {"Location": "http://portal.example/login?secret=1"}, b""),
    "to itself": (302, {"Location": "/again"}, b"<html></html>"),
    "moved for now": (307, {"Location": "http://portal.example/"}, b""),
    "a page": (200, PAGE, b"<html><body>Log in <br></body></html>"),
    "a page in XML": (200, PAGE, b"<html><body>Log in</body></html>"),
    "a page that denies": (403, PAGE, b"<html><body>Log in</body></html>"),
    "a page that asks who": (401, PAGE, b"<!DOCTYPE html><HTML><br>Log in"),
    "nothing": (200, {}, b""),
    "no content": (204, {}, b""),
    "no size": (200, XML, listing("<Contents><Key>m/a</Key><ETag>x</ETag></Contents>")),
    "no ETag": (200, XML, listing("<Contents><Key>m/a</Key><Size>3</Size></Contents>")),
    "no key": (200, XML, listing("<Contents><Size>3</Size></Contents>")),
    "no number": (200, XML, listing("<Contents><Key>m/a</Key><Size>x</Size></Contents>")),
    "a list": (200, JSON, b"[1]"),
    "a name alone": (200, JSON, b'{"items": [{"name": "m/a"}]}'),
    "a number of items": (200, JSON, b'{"items": 7}'),
}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


class _Server(ThreadingHTTPServer):
    answer: Answer = (200, {}, b"")


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "STORAGE_EMULATOR_HOST": address,
            "AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={address}/acme;"
            "AccountName=acme;AccountKey=c2VjcmV0",
        }.items():
            patch.setenv(name, value)
        patch.setattr(google, "REPEATED_SECONDS", 0.1)
        google.patience.cache_clear()
        yield server
    google.patience.cache_clear()
    server.shutdown()
    thread.join()
    server.server_close()


def read(bucket: Bucket) -> bytes:
    with bucket.read("m/a") as body:
        return b"".join(body.pieces)


REQUESTS = {
    "list": lambda bucket: bucket.list("m/"),
    "read": read,
    "size": lambda bucket: bucket.nbytes("m/a", "7"),
    "check": lambda bucket: bucket.check("m/a", Listed(5, "7")),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_it_is_told_and_is_for_now(server: _Server, scheme: str, request_: str, name: str) -> None:
    server.answer = ANSWERS[name]
    bucket = open_bucket(f"{scheme}://box/m")
    with pytest.raises(StoreError) as caught:
        REQUESTS[request_](bucket)
    assert not caught.value.denied
    explained = explain_bucket_error(caught.value, "s3://box/m", "s3://box/m/a")
    assert isinstance(explained, Resumable) and explained.reason == "network"
    said = str(caught.value)
    assert any(told in said for told in (f"HTTP {server.answer[0]}", "a web page", "fails: HTTP"))
    assert "secret" not in said
    if (scheme, request_, name) == ("s3", "list", "a page"):
        assert "a web page" in said
    if name == "elsewhere":
        assert "HTTP 302 to portal.example" in said and "login page" in said


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_that_asks_for_patience_is_given_it(status: int) -> None:
    error = refusal(Advice("log in", "create it"), "box", status, retry_after="7")
    assert isinstance(error, StoreError) and not error.denied
    assert (error.retry_after, f"fails: HTTP {status}" in str(error)) == (7.0, True)


def test_an_empty_listing_is_one(server: _Server) -> None:
    server.answer = (200, XML, listing(""))
    assert open_bucket("s3://box/m").list("m/") == {}


def test_a_condition_that_is_not_met_is_no_odd_answer(server: _Server) -> None:
    server.answer = (412, {}, b"")
    for scheme in ("s3", "az"):
        with pytest.raises(Changed):
            open_bucket(f"{scheme}://box/m").nbytes("m/a", "7")
