"""A container of Azure in memory, with the calls of azure-storage-blob that a mirror makes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from resumerge.buckets.azure import AzureBucket
from resumerge.mirror.stores.buckets.azure import AzureClient, AzureStore


def refused(status: int, code: str) -> HttpResponseError:
    """Return the error that the library raises for a refused request."""
    answer = SimpleNamespace(status_code=status, reason=code, headers={}, content_type=None)
    error = HttpResponseError(code, response=answer)
    error.error_code = code
    return error


@dataclass
class Server:
    """One container.

    Attributes:
        blobs: bytes, ETag and stated MD5 of each blob.
        blocks: the blocks that were sent and are in no blob, by the name of the blob.
        asked: the requests, in order: the call and the name of the blob.
        polls: how often the state of a copy is requested until it has ended.
        ending: how a copy ends.
        at: the time by the server's clock; None if it does not report one.
    """

    blobs: dict[str, tuple[bytes, str, bytes | None]] = field(default_factory=dict)
    blocks: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    polls: int = 0
    ending: str = "success"
    at: datetime | None = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def write(self, name: str, data: bytes, md5: bytes | None = None) -> None:
        self.blobs[name] = data, f'"0x{next(self._numbers)}"', md5

    def check(self, name: str, condition: MatchConditions | None, etag: str | None) -> None:
        """Refuse a request whose condition is not met."""
        there = self.blobs.get(name)
        if condition is MatchConditions.IfMissing and there is not None:
            raise refused(409, "BlobAlreadyExists")
        if condition is MatchConditions.IfNotModified and (there is None or there[1] != etag):
            raise refused(412, "ConditionNotMet")


class Blob:
    """The library's client of one blob."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self.blob_name, self.url = server, name, f"https://server/{name}"

    def _there(self, call: str) -> tuple[bytes, str, bytes | None]:
        self._server.asked.append((call, self.blob_name))
        if self.blob_name not in self._server.blobs:
            raise refused(404, "BlobNotFound")
        return self._server.blobs[self.blob_name]

    def upload_blob(
        self,
        data: bytes,
        *,
        overwrite: bool = False,
        validate_content: bool = False,
        etag: str | None = None,
        match_condition: MatchConditions | None = None,
    ) -> None:
        self._server.asked.append(("upload", self.blob_name))
        self._server.check(
            self.blob_name, match_condition if overwrite else MatchConditions.IfMissing, etag
        )
        self._server.write(self.blob_name, data)
        self._server.blocks.pop(self.blob_name, None)

    def delete_blob(self) -> None:
        self._there("delete")
        del self._server.blobs[self.blob_name]

    def start_copy_from_url(self, url: str) -> dict[str, str]:
        data, _, md5 = Blob(self._server, url.removeprefix("https://server/"))._there("copy")
        self._server.write(self.blob_name, data if self._server.ending == "success" else b"", md5)
        return {"copy_status": "pending" if self._server.polls else self._server.ending}

    def get_blob_properties(self) -> Any:
        data, etag, md5 = self._there("properties")
        self._server.polls -= 1
        status = "pending" if self._server.polls > 0 else self._server.ending
        return SimpleNamespace(
            size=len(data),
            etag=etag,
            content_settings=SimpleNamespace(content_md5=md5),
            copy=SimpleNamespace(status=status),
        )

    def download_blob(
        self,
        offset: int,
        length: int,
        *,
        decompress: bool,
        etag: str,
        match_condition: MatchConditions,
    ) -> Any:
        data = self._there("download")[0]
        self._server.check(self.blob_name, match_condition, etag)
        return SimpleNamespace(readall=lambda: data[offset : offset + length])

    def get_block_list(self, kind: str) -> tuple[list[Any], list[Any]]:
        assert kind == "uncommitted"
        self._server.asked.append(("blocks", self.blob_name))
        blocks = self._server.blocks.get(self.blob_name)
        if blocks is None and self.blob_name not in self._server.blobs:
            raise refused(404, "BlobNotFound")
        return [], [SimpleNamespace(id=name) for name in blocks or ()]

    def stage_block(self, name: str, data: bytes, *, length: int, validate_content: bool) -> None:
        assert len(data) == length and validate_content
        self._server.asked.append(("block", self.blob_name))
        blocks = self._server.blocks.setdefault(self.blob_name, {})
        if any(len(other) != len(name) for other in blocks):
            raise refused(400, "InvalidBlobOrBlock")
        blocks[name] = data

    def commit_block_list(
        self,
        blocks: Sequence[Any],
        *,
        content_settings: Any,
        match_condition: MatchConditions | None = None,
    ) -> None:
        self._server.asked.append(("commit", self.blob_name))
        self._server.check(self.blob_name, match_condition, None)
        there = self._server.blocks.pop(self.blob_name, {})
        data = b"".join(there[block.id] for block in blocks)
        self._server.write(self.blob_name, data, bytes(content_settings.content_md5))


class Api:
    """The library's client of a container."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def get_blob_client(self, name: str) -> Blob:
        return Blob(self._server, name)

    def list_blobs(
        self,
        *,
        name_starts_with: str,
        include: Sequence[str] = (),
        results_per_page: int | None = None,
        raw_response_hook: Callable[[Any], None] | None = None,
    ) -> Iterator[Any]:
        self._server.asked.append(("list", name_starts_with))
        if raw_response_hook is not None:
            at = self._server.at
            headers = {"Date": format_datetime(at, usegmt=True)} if at else {}
            raw_response_hook(SimpleNamespace(http_response=SimpleNamespace(headers=headers)))
        for name, (data, etag, _) in sorted(self._server.blobs.items()):
            if name.startswith(name_starts_with):
                yield SimpleNamespace(name=name, size=len(data), etag=etag, metadata=None)


class MemoryContainer(AzureBucket):
    """A container of a server in memory."""

    def __init__(self, server: Server) -> None:
        super().__init__("box")
        self._api = Api(server)

    def api(self) -> Api:
        return self._api


def open_container(server: Server, prefix: str = "p") -> AzureStore:
    """Return the store below a prefix, as a new process opens it."""
    client = AzureClient("box", prefix)
    client._objects = MemoryContainer(server)
    return AzureStore(f"az://box/{prefix}", client)


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
