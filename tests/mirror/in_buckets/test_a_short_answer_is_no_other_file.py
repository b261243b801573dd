"""Promise: an object of which a server or proxy sends too little is read again, and is not taken
for a file of somebody else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pytest

from resumerge.buckets.base import Body, Bucket, Listed
from resumerge.buckets.content_hash import Begin, HashCheck
from resumerge.buckets.errors import Changed
from resumerge.errors import StoreError
from resumerge.mirror.conflicts import ConflictResolver
from resumerge.mirror.stores.buckets.s3 import S3Client, S3Store

CONFIG = b'{"model_type": "llama"}'


class Objects(Bucket):
    """A bucket with one object, whose listing and whose reads the test chooses.

    Args:
        sent: what reads bring.
        etag: the ETag; by default the MD5 that S3 states.
        hashed: whether the server has an MD5 of it beside the ETag.
    """

    server = "server"

    def __init__(self, sent: bytes, etag: str = "", *, hashed: bool = False) -> None:
        super().__init__("box")
        self.sent, self.hashed = sent, hashed
        self.md5 = hashlib.md5(CONFIG).hexdigest()
        self.etag = etag or self.md5

    def list(self, prefix: str) -> dict[str, Listed]:
        return {"config.json"[len(prefix) :]: Listed(len(CONFIG), self.etag)}

    @contextmanager
    def read(self, key: str, *_: Any, **__: Any) -> Iterator[Body]:
        headers: Mapping[str, str | None] = {}
        yield Body(len(self.sent), f'"{self.etag}"', iter([self.sent]), 200, headers, lambda: None)

    def nbytes(self, key: str, etag: str) -> int:
        return len(CONFIG)

    def check(self, key: str, known: Listed) -> Begin | None:
        if known.etag != self.etag:
            raise Changed
        return (lambda: HashCheck(hashlib.md5(), self.md5)) if self.hashed else None

    def _open(self) -> Any:
        raise AssertionError("no request is made")


def store(objects: Objects) -> S3Store:
    client = S3Client("box", "")
    client._objects = cast("Any", objects)
    return S3Store("s3://box", client)


SHORT = [CONFIG[:5], b"", b"<html>"]


@pytest.mark.parametrize("etag", ["", "17c0ffee", f"{'0' * 32}-2"])
@pytest.mark.parametrize("sent", SHORT)
def test_bytes_that_are_missing_are_told(sent: bytes, etag: str) -> None:
    mirror = store(Objects(sent, etag))
    with pytest.raises(StoreError, match=f"{len(sent)} of {len(CONFIG)} bytes"):
        mirror.get("config.json")
    with pytest.raises(StoreError):
        mirror.sha256("config.json", lambda nbytes: None)


@pytest.mark.parametrize("etag", ["", "17c0ffee"])
def test_other_bytes_than_the_server_has_are_told(etag: str) -> None:
    mirror = store(Objects(CONFIG.swapcase(), etag, hashed=True))
    with pytest.raises(StoreError, match="does not have its hash"):
        mirror.get("config.json")


@pytest.mark.parametrize("etag", ["", "17c0ffee"])
def test_what_came_whole_is_taken(etag: str) -> None:
    for hashed in (True, False):
        mirror = store(Objects(CONFIG, etag, hashed=hashed))
        assert mirror.get("config.json") == CONFIG
        assert mirror.sha256("config.json", lambda n: None) == hashlib.sha256(CONFIG).hexdigest()
        assert mirror.get("config.json", 3) == b"", "it is too large"


def test_what_was_replaced_while_it_was_read_is_taken_as_it_was() -> None:
    """The listing, or the hash, may be that of the next version."""

    class Replaced(Objects):
        def list(self, prefix: str) -> dict[str, Listed]:
            return {"config.json"[len(prefix) :]: Listed(7, "next")}

    class ReplacedLater(Objects):
        def check(self, key: str, known: Listed) -> Begin | None:
            raise Changed

    for kind in (Replaced, ReplacedLater):
        assert store(kind(CONFIG, "17c0ffee")).get("config.json") == CONFIG


def test_what_was_removed_while_it_was_read_is_missing() -> None:
    class Removed(Objects):
        def list(self, prefix: str) -> dict[str, Listed]:
            return {}

    with pytest.raises(FileNotFoundError):
        store(Removed(CONFIG, "17c0ffee")).get("config.json")


@pytest.mark.parametrize("sent", SHORT)
def test_no_file_of_the_run_is_kept_as_a_strangers(sent: bytes) -> None:
    renamed: list[tuple[str, str]] = []
    conflicts = ConflictResolver(
        store(Objects(sent)), lambda *names: renamed.append(names), lambda nbytes: None
    )
    with pytest.raises(StoreError):
        conflicts.make_way("config.json", CONFIG, len(CONFIG))
    assert not renamed


@pytest.mark.parametrize("sent", SHORT)
def test_a_heartbeat_that_came_in_part_is_no_other_owners(sent: bytes) -> None:
    mirror = store(Objects(sent))
    mirror._obstacle = ""
    with pytest.raises(StoreError):
        mirror.put_if_unchanged("config.json", b"the next", CONFIG)
