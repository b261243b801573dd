"""One bucket of S3, or of any server that speaks its protocol: the requests that read.

Requests are made with boto3, AWS's own library: it takes credentials from where AWS's tools take
them.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from resumerge.buckets.errors import Refused, Unsupported, s3_errors
from resumerge.errors import refuse

PIECE = 1 << 20
"""Bytes that are read at once."""

IDLE_TIMEOUT = 60.0
"""A connection that transfers nothing for so many seconds is closed."""

DEFAULT_REGION = "us-east-1"
"""Where no region is configured: servers that are not AWS's accept any."""

AWS = "amazonaws.com"


class Listed(NamedTuple):
    """An object in a listing. The ETag has no quotes."""

    nbytes: int
    etag: str


@dataclass(frozen=True)
class Body:
    """The answer to a read.

    Args:
        nbytes: of the whole object.
        version: its ETag, which differs after every change of its content.
        pieces: the bytes from the start that was asked for; to be read within the context.
        response: as boto3 returns it.
    """

    nbytes: int
    version: str
    pieces: Iterator[bytes]
    response: Mapping[str, Any]

    def abort(self) -> None:
        """Close the connection from another thread; the reading thread gets an error."""
        with suppress(Exception):  # there is no public way to the socket
            self.response["Body"]._raw_stream._fp.fp.raw._sock.shutdown(socket.SHUT_RDWR)


class S3Bucket:
    """The requests, once each. Objects are named by their keys. Threads may share it.

    Endpoint, region and credentials come from the environment and from AWS's files, as boto3 reads
    them (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_PROFILE …). boto3 repeats a request
    that fails twice, within seconds.

    Raises (all methods):
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the object has another ETag than the one that was asked for.

    Attributes:
        at: the server's clock, in its latest answer.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.at: datetime | None = None
        self._opening = threading.Lock()
        self._opened: tuple[int, Any] | None = None
        """The process, and its client: connections do not survive a fork."""

    @property
    def server(self) -> str:
        """The server's name, as a part of a path: AWS's, or that of the endpoint with its port."""
        address = urlsplit(self.api().meta.endpoint_url)
        host = address.hostname or ""
        if host == AWS or host.endswith(f".{AWS}"):
            return AWS
        return f"{host.replace(':', '_')}_{address.port}" if address.port else host

    def list(self, prefix: str) -> dict[str, Listed]:
        """Every object whose key begins with a prefix, by the rest of its key."""
        found = {}
        with s3_errors(self.name):
            pages = self.api().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=prefix):
                for item in page.get("Contents", ()):
                    name = item["Key"].removeprefix(prefix)
                    if not item["Key"].endswith("/"):  # a console's mark of a folder
                        found[name] = Listed(item["Size"], item["ETag"].strip('"'))
        return found

    @contextmanager
    def read(
        self,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        etag: str = "",
        piece: int = PIECE,
    ) -> Iterator[Body]:
        """An object's bytes ``start:stop``.

        Args:
            etag: of the object, without quotes; empty for any.
            piece: bytes that are read at once.
        """
        conditions = {"IfMatch": f'"{etag}"'} if etag else {}
        if start or stop is not None:
            conditions["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        with s3_errors(self.name, key):
            answer = self.api().get_object(Bucket=self.name, Key=key, **conditions)
        stream = answer["Body"]

        def pieces() -> Iterator[bytes]:
            with s3_errors(self.name, key):
                yield from iter(lambda: stream.read(piece), b"")

        whole = str(answer.get("ContentRange", "")).rpartition("/")[2]
        nbytes = int(whole) if whole.isdecimal() else answer["ContentLength"]
        try:
            yield Body(nbytes, answer["ETag"], pieces(), answer)
        finally:
            stream.close()

    def head(self, key: str, *, etag: str) -> Mapping[str, Any]:
        """What the server says of an object, with the hashes that it knows.

        Args:
            etag: of the object, without quotes.
        """
        with s3_errors(self.name, key):
            found: Mapping[str, Any] = self.api().head_object(
                Bucket=self.name, Key=key, IfMatch=f'"{etag}"', ChecksumMode="ENABLED"
            )
            return found

    def part_bytes(self, key: str, number: int) -> int:
        """Bytes of a part of an object, by its number from 1; 0 if the server does not say."""
        # Without IfMatch: some servers compare it with the part's own ETag.
        try:
            with s3_errors(self.name, key):
                found = self.api().head_object(Bucket=self.name, Key=key, PartNumber=number)
        except (Unsupported, Refused):
            return 0
        return int(found["ContentLength"]) if "PartsCount" in found else 0

    def api(self) -> Any:
        """boto3's client; this process's own."""
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            return self._opened[1]

    def _open(self) -> Any:
        import boto3
        import botocore.session
        from botocore.config import Config

        config = Config(
            connect_timeout=10,
            read_timeout=IDLE_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": 3},
            max_pool_connections=16,
            # Servers that are not AWS's refuse the checksums that boto3 adds by itself. Every write
            # has a Content-MD5, which all of them compare.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with s3_errors(self.name):
            described = botocore.session.Session()
            described.register_component("data_loader", _loader())
            session = boto3.session.Session(botocore_session=described)
            region = os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
            api = session.client("s3", region_name=region, config=config)
        api.meta.events.register("after-call.s3", self._note_time)
        return api

    def _note_time(self, parsed: dict[str, Any], **_: Any) -> None:
        date = parsed["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is not None:
            self.at = parsedate_to_datetime(date).astimezone(UTC)


def check_boto3(where: str, needed_by: str) -> None:
    """Check that boto3 is installed.

    Raises:
        InputError: it is not.
    """
    if importlib.util.find_spec("boto3") is None:
        raise refuse(
            f"boto3 is not installed, which {needed_by} need",
            where=where,
            fix="pip install 'resumerge[cloud]'",
        )


@functools.cache
def _loader() -> Any:
    """Holds the description of S3's protocol, which takes a tenth of a second to read."""
    from botocore.loaders import create_loader

    return create_loader()
