"""A store in a container of Azure Blob Storage.

Large files are sent in Azure's blocks, each with its MD5, which the server verifies. The name of a
block contains its number and MD5. By these names, a later attempt finds the blocks that the server
already has, also on another machine.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from resumerge.buckets.address import EXAMPLES
from resumerge.buckets.azure import AzureBucket, azure_errors, missing, unchanged
from resumerge.mirror.stores.base import Moved, StoreError
from resumerge.mirror.stores.buckets.client import BucketClient, sha256_if_stored
from resumerge.mirror.stores.buckets.store import BucketStore

UPLOADED_BLOCK = 4 << 20
"""The bytes of a block of Azure, which is held in memory."""

MOST_BLOCKS = 50_000
"""The most blocks of a blob that Azure allows."""

COPY_POLL_SECONDS = 0.5


class AzureClient(BucketClient):
    """The requests to a container of Azure, for the names below one prefix."""

    objects = AzureBucket
    _objects: AzureBucket

    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        condition = unchanged(version) if version else {}
        with azure_errors(self.bucket):
            self._blob(name).upload_blob(
                data, overwrite=not absent, validate_content=True, **condition
            )

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), azure_errors(self.bucket, name):
            self._blob(name).delete_blob()

    def copy(self, name: str, other: str) -> None:
        target = self._blob(other)
        with azure_errors(self.bucket, name):
            status = target.start_copy_from_url(self._blob(name).url)["copy_status"]
            while status == "pending":
                time.sleep(COPY_POLL_SECONDS)
                status = target.get_blob_properties().copy.status
        if status != "success":
            raise StoreError(f"{name} in {self.bucket} could not be copied: {status}")

    def upload(self, name: str, path: Path, moved: Moved, *, absent: bool = False) -> str:
        moved(0)
        sha256 = sha256_if_stored(self._objects, self._prefix + name, path, moved)
        condition = missing() if absent else {}
        return sha256 or _Upload(self.bucket, self._blob(name), path, moved, condition).run()

    def abandon_uploads(self, names: Iterable[str]) -> None:
        """Do nothing: Azure removes uncommitted blocks within a week."""

    def now(self) -> datetime | None:
        dates: list[str] = []

        def note(response: Any) -> None:
            dates.append(response.http_response.headers.get("Date", ""))

        with azure_errors(self.bucket):
            pages = self._objects.api().list_blobs(
                name_starts_with=self._prefix, results_per_page=1, raw_response_hook=note
            )
            next(iter(pages), None)
        return parsedate_to_datetime(dates[0]).astimezone(UTC) if any(dates) else None

    def _blob(self, name: str) -> Any:
        return self._objects.api().get_blob_client(self._prefix + name)


class _Upload:
    """The upload of one file to one blob.

    Args:
        container: the container's name, for messages.
        blob: the library's client of the blob.
        path: the local file.
        moved: called with the number of bytes that were moved; may raise to stop.
        condition: extra arguments of the request that commits the blocks, with its condition.
    """

    def __init__(
        self, container: str, blob: Any, path: Path, moved: Moved, condition: Mapping[str, Any]
    ) -> None:
        self._container, self._blob, self._condition = container, blob, condition
        self._path, self._moved = path, moved
        self._nbytes = path.stat().st_size
        self._block = block_bytes(self._nbytes)
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)

    def run(self) -> str:
        """Send the missing blocks, commit the blob, and return the SHA-256 of the local file."""
        sent_names = self._sent_blocks()
        names = []
        for number, block in enumerate(self._pieces()):
            name = _block_name(number, block)
            self._moved(0)
            if name not in sent_names:
                self._moved(len(block))
                with azure_errors(self._container):
                    self._blob.stage_block(name, block, length=len(block), validate_content=True)
            names.append(name)
        self._commit(names)
        return self._sha256.hexdigest()

    def _sent_blocks(self) -> set[str]:
        """Return the names of the blocks that the server has of an interrupted upload.

        If another program sent blocks whose names have another length, all blocks are discarded:
        Azure requires names of one length in a blob.
        """
        try:
            with azure_errors(self._container, self._blob.blob_name):
                blocks = self._blob.get_block_list("uncommitted")[1]
                names = {str(block.id) for block in blocks}
                if any(len(name) != len(_block_name(0, b"")) for name in names):
                    self._blob.upload_blob(b"", overwrite=True)
                    return set()
        except FileNotFoundError:
            return set()
        return names

    def _pieces(self) -> Iterator[bytes]:
        """Yield the blocks of the local file, and update the hashes of the file."""
        with self._path.open("rb", buffering=0) as file:
            for start in range(0, self._nbytes, self._block):
                block = file.read(min(self._block, self._nbytes - start))
                self._sha256.update(block)
                self._md5.update(block)
                yield block

    def _commit(self, names: list[str]) -> None:
        from azure.storage.blob import BlobBlock, ContentSettings

        settings = ContentSettings(content_md5=bytearray(self._md5.digest()))
        with azure_errors(self._container):
            self._blob.commit_block_list(
                [BlobBlock(name) for name in names], content_settings=settings, **self._condition
            )


def block_bytes(nbytes: int) -> int:
    """Return the bytes per block: the least multiple of `UPLOADED_BLOCK` within `MOST_BLOCKS`."""
    return UPLOADED_BLOCK * max(1, -(-nbytes // (UPLOADED_BLOCK * MOST_BLOCKS)))


def _block_name(number: int, data: bytes) -> str:
    md5 = hashlib.md5(data, usedforsecurity=False).digest()
    return base64.b64encode(number.to_bytes(4, "big") + md5).decode()


class AzureStore(BucketStore):
    """Blobs in a container of Azure. `AzureBucket` describes the account and credentials."""

    scheme = "az"
    example = EXAMPLES["az"]
    client = AzureClient
