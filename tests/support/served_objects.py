"""A server in this process from which objects are read by the protocols of S3, Google and Azure.

It records each request with its headers, observes conditions, and lists pages of two objects. It
does nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

SCHEMES = ("s3", "gs", "az")
PAGE = 2
"""The objects of one page of a listing."""

FAILED = {403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed"}


class Request(NamedTuple):
    """A request: its method, its path without the account, its query and its headers."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """An answer: its status, its body and its headers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


@dataclass
class Stored:
    """An object.

    Args:
        data: its bytes.
        etag: its ETag without quotes; in Google's cloud its generation.
        headers: the further headers of an answer with it.
        hashes: whether Google and Azure state an MD5.
        parts: the lengths of the parts, for S3.
    """

    data: bytes
    etag: str
    headers: Mapping[str, str] = field(default_factory=dict)
    hashes: bool = True
    parts: tuple[int, ...] = ()

    @property
    def md5(self) -> str:
        return base64.b64encode(hashlib.md5(self.data).digest()).decode()


@dataclass
class Objects:
    """The objects of one container, which is named `box`.

    Attributes:
        stored: the objects by their keys.
        requests: the requests so far.
        choose: a function that returns the answer to a request; None for the right one.
        ignored: the headers of requests, in lower case, that the server ignores.
    """

    address: str
    stored: dict[str, Stored] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    choose: Callable[[Request], Answer | None] = lambda request: None
    ignored: set[str] = field(default_factory=set)
    count: int = 0

    def clear(self) -> None:
        self.stored.clear()
        self.requests.clear()
        self.ignored.clear()
        self.choose = lambda request: None

    def put(self, key: str, data: bytes, **facts: object) -> Stored:
        """Store an object as the next version, whatever its bytes are."""
        self.count += 1
        etag = hashlib.md5(data).hexdigest() if key.endswith(".md5") else str(1000 + self.count)
        self.stored[key] = Stored(data, **{"etag": etag, **facts})  # type: ignore[arg-type]
        return self.stored[key]

    def upload(self, prefix: str, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self.put(f"{prefix}/{name}", data)

    def asked(self, key: str, method: str = "GET") -> list[Request]:
        """Return the requests for an object."""
        return [r for r in self.requests if r.path.endswith(f"/{key}") and r.method == method]

    def env(self) -> dict[str, str]:
        """Return the variables that direct the libraries of all clouds to this server."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_REGION": "us-east-1",
            "STORAGE_EMULATOR_HOST": self.address,
            "AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={self.address}/acme;"
            "AccountName=acme;AccountKey=c2VjcmV0",
        }

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        chosen = self.choose(request)
        if chosen is not None:
            return chosen
        if request.path.startswith(("/storage/v1/", "/download/")):
            return self._google(request)
        key = request.path.removeprefix("/box").removeprefix("/")
        if not key:
            return self._listing(request)
        found = self.stored.get(key)
        if found is None:
            return failure(404)
        headers = {name: v for name, v in request.headers.items() if name not in self.ignored}
        if headers.get("if-match", f'"{found.etag}"') != f'"{found.etag}"':
            return failure(412, "ConditionNotMet" if "x-ms-version" in headers else "")
        number = int(request.query.get("partNumber", "0"))
        if number and found.parts:
            count = {"x-amz-mp-parts-count": str(len(found.parts))}
            return Answer(206, bytes(found.parts[number - 1]), count)
        said = dict(found.headers)
        if found.hashes and "x-ms-version" in headers:
            said["Content-MD5"] = found.md5
        return _of_range(found, headers.get("x-ms-range") or headers.get("range"), said)

    def _page(self, prefix: str, token: str) -> tuple[list[tuple[str, Stored]], str]:
        """Return the objects of a page, and the token of the next one; empty if there is none."""
        found = [(k, each) for k, each in sorted(self.stored.items()) if k.startswith(prefix)]
        start = int(token or "0")
        rest = str(start + PAGE) if start + PAGE < len(found) else ""
        return found[start : start + PAGE], rest

    def _listing(self, request: Request) -> Answer:
        query, entries = request.query, []
        if "x-ms-version" not in request.headers:
            page, token = self._page(query.get("prefix", ""), query.get("continuation-token", ""))
            for key, each in page:
                entries.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(each.data)}</Size>"
                    f"<ETag>&quot;{each.etag}&quot;</ETag></Contents>"
                )
            entries.append(f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>")
            entries += [f"<NextContinuationToken>{token}</NextContinuationToken>"][: bool(token)]
            return _xml(f"<ListBucketResult>{''.join(entries)}</ListBucketResult>")
        page, token = self._page(query.get("prefix", ""), query.get("marker", ""))
        for key, each in page:
            marks = each.headers if query.get("include") == "metadata" else {}
            names = {k: k.removeprefix("x-ms-meta-") for k in marks if k.startswith("x-ms-meta-")}
            metadata = "".join(f"<{names[k]}>{marks[k]}</{names[k]}>" for k in names)
            entries.append(
                f"<Blob><Name>{escape(key)}</Name><Properties><Etag>{each.etag}</Etag>"
                f"<Content-Length>{len(each.data)}</Content-Length><BlobType>BlockBlob</BlobType>"
                f"</Properties><Metadata>{metadata}</Metadata></Blob>"
            )
        blobs = f"<Blobs>{''.join(entries)}</Blobs><NextMarker>{token}</NextMarker>"
        prefix = f"<Prefix>{escape(query.get('prefix', ''))}</Prefix>"
        return _xml(f"<EnumerationResults>{prefix}{blobs}</EnumerationResults>")

    def _google(self, request: Request) -> Answer:
        _, of_objects, path = request.path.partition("/b/box/o")
        path, query = path.removeprefix("/"), request.query
        if not of_objects:  # the library asks now and then what the bucket is
            return failure(404)
        if not path:
            page, token = self._page(query.get("prefix", ""), query.get("pageToken", ""))
            named = [{"name": key, **_described(each)} for key, each in page]
            fields = query["fields"]  # no other ones are sent
            items = [{n: v for n, v in item.items() if n in fields} for item in named]
            has_more = token and "nextPageToken" in fields
            return _json({"items": items, **({"nextPageToken": token} if has_more else {})})
        found = self.stored.get(path)
        if found is None or query.get("generation", found.etag) != found.etag:
            return failure(404)
        if query.get("alt") == "media":
            return _of_range(found, request.headers.get("range"), dict(found.headers))
        hashes = {"md5Hash": found.md5} if found.hashes else {}
        return _json({"name": path, **_described(found), **hashes})


def failure(status: int, code: str = "") -> Answer:
    """Return an answer that reports a failure as S3 and Azure do."""
    code = code or FAILED.get(status, "")
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode() if code else b""
    return Answer(status, body, {"Content-Type": "application/xml", "x-ms-error-code": code})


def _described(each: Stored) -> dict[str, str]:
    return {"size": str(len(each.data)), "generation": each.etag}


def _of_range(found: Stored, asked: str | None, headers: dict[str, str]) -> Answer:
    headers["ETag"] = f'"{found.etag}"'
    if asked is None:
        return Answer(200, found.data, headers)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    start, stop = int(first), min(len(found.data), int(last or len(found.data)) + 1)
    if start >= len(found.data):
        return failure(416, "InvalidRange")
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(found.data)}"
    return Answer(206, found.data[start:stop], headers)


def _xml(text: str) -> Answer:
    return Answer(200, text.encode(), {"Content-Type": "application/xml"})


def _json(document: object) -> Answer:
    return Answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})


class _Server(ThreadingHTTPServer):
    objects: Objects


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        path = unquote(address.path).removeprefix("/acme")
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        answer = self.server.objects.answer(Request(self.command, path, query, headers))
        self.send_response_only(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving() -> Iterator[Objects]:
    """Serve objects, and yield them; there are none at first."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.objects = Objects(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.objects
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def served() -> Iterator[Objects]:
    """Serve objects, to which this process's environment directs the library of each cloud."""
    from resumerge.buckets import google

    with serving() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.env().items():
            patch.setenv(name, value)
        patch.setattr(google, "REPEATED_SECONDS", 0.1)
        google.patience.cache_clear()
        yield found
    google.patience.cache_clear()
