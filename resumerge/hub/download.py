"""Download of one Hub file, resumed where an earlier download stopped, verified as it arrives.

huggingface_hub deletes a partial file when a download fails, so this downloader is our own. The
bytes are appended to the cache's partial file. Whether a download ends by an error or by a kill,
the next one requests the missing bytes (``Range``), provided that the file is unchanged
(``If-Range``), and accepts any valid response to that. The content's hash is computed on the way; a
file gets its name in the cache only if its content has the hash in that name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from resumerge.errors import Resumable
from resumerge.hub.cache import HubFile
from resumerge.hub.callbacks import DownloadCallbacks
from resumerge.hub.client import DOWNLOAD, hub_call
from resumerge.hub.content_hash import CHUNK, content_digest, is_intact
from resumerge.hub.http import Response, get
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.hub.xet import download_by_xet, is_served_by_xet

ATTEMPTS = 3
"""Downloads of a file whose content turns out to be wrong."""


def download(
    file: HubFile,
    metadata: MetadataCache,
    callbacks: DownloadCallbacks,
    *,
    damaged: int | None = None,
) -> None:
    """Download a file into the cache, which has no intact copy of it.

    The verdict is recorded in `metadata`. If another process is downloading the same content, this
    one waits for it.

    Args:
        damaged: inode of the damaged file that is to be replaced, if there is one.

    Raises:
        InputError: the Hub denies the file.
        Resumable: the network failed after all retries, the disk is full, or the content is wrong
            in every attempt.
    """
    if is_served_by_xet(file):
        _download_by_xet(file, metadata, callbacks)
        return
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    with file.locked(callbacks.check):
        if file.whole and file.inode != damaged:
            return  # another process downloaded it; the caller checks whether it is intact
        download_by_ranges(file, metadata, callbacks)


def download_by_ranges(
    file: HubFile, metadata: MetadataCache, callbacks: DownloadCallbacks
) -> None:
    """Download a file over HTTP to its place in the cache; see `download`."""
    with _PartialFile.opened(file, callbacks.check) as part:
        callbacks.started(part.inode)
        for _ in range(ATTEMPTS):
            hub_call(
                lambda: _receive(file, part, metadata, callbacks),
                repo=file.repo,
                revision=file.commit,
                backoff=DOWNLOAD,
                sleep=callbacks.sleep,
                progress=lambda: part.length,
            )
            if part.is_intact():
                os.fdatasync(part.fd)
                file.put(file.partial)
                metadata.store_validator(file.partial, None)
                metadata.record_verdict(file.content or file.blob, file.etag, True)
                return
            callbacks.event("download_damaged", repo=file.repo, file=file.name)
            part.clear()
            metadata.store_validator(file.partial, None)
    raise _always_damaged(file)


def _receive(
    file: HubFile, part: _PartialFile, metadata: MetadataCache, callbacks: DownloadCallbacks
) -> None:
    """Request the missing bytes once, and append those that arrive."""
    from huggingface_hub import hf_hub_url

    if part.length == file.size:
        return
    headers = {}
    if part.length:
        headers["Range"] = f"bytes={part.length}-"
        validator = metadata.validator(file.partial)
        if validator:
            headers["If-Range"] = validator
    with get(hf_hub_url(file.repo, file.name, revision=file.commit), headers) as response:
        callbacks.response = response
        try:
            skip = _bytes_to_skip(file, part, response, metadata)
            for chunk in response.chunks:
                new = chunk[skip:]
                skip = max(0, skip - len(chunk))
                if part.length + len(new) > file.size:
                    part.clear()
                    raise ConnectionError(
                        f"the server sent more than the {file.size} bytes of {file.name}"
                    )
                if new:
                    part.append(new)
                    callbacks.progressed(part.length)
                callbacks.check()
        finally:
            callbacks.response = None
    if part.length < file.size:
        raise ConnectionError(
            f"the server sent only {part.length} of {file.size} bytes of {file.name}"
        )


def _bytes_to_skip(
    file: HubFile, part: _PartialFile, response: Response, metadata: MetadataCache
) -> int:
    """Compare the response with the partial file, which is cleared if they do not match.

    Returns:
        How many bytes at the start of the body the partial file has already.

    Raises:
        ConnectionError: they do not match; the next attempt requests the file again.
    """
    etag = str(response.headers.get("ETag") or "")
    strong = etag if etag.startswith('"') else None
    known = metadata.validator(file.partial)
    changed = part.length > 0 and strong is not None and known is not None and strong != known
    encoded = (response.headers.get("Content-Encoding") or "identity") != "identity"
    if strong != known:
        metadata.store_validator(file.partial, strong)
    if response.status == 206:
        span = re.match(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range") or "")
        fits = span and int(span[1]) == part.length and span[2] in (str(file.size), "*")
        if fits and not changed and not encoded:
            return 0
        part.clear()
        raise ConnectionError(f"the server sent a range of {file.name} that was not requested")
    if response.status == 416:
        part.clear()
        raise ConnectionError(f"the server says that {file.name} is shorter than expected")
    length = response.headers.get("Content-Length")
    if length is not None and not encoded and int(length) != file.size:
        raise ConnectionError(
            f"the server sends {length} bytes for {file.name}, which has {file.size} bytes"
        )
    if changed:
        part.clear()
    return part.length


class _PartialFile:
    """The partial file, its length and the hash of its bytes."""

    def __init__(self, fd: int, etag: str, size: int) -> None:
        self.fd = fd
        self._etag, self._size = etag, size
        self.length = 0
        self._digest = content_digest(etag, size)

    @classmethod
    @contextmanager
    def opened(cls, file: HubFile, check: Callable[[], None]) -> Iterator[_PartialFile]:
        """Open or create the file, and hash the bytes in it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(file.partial, flags, 0o666)
        try:
            part = cls(fd, file.etag, file.size)
            if os.fstat(fd).st_size > file.size:
                part.clear()
            while chunk := os.pread(fd, CHUNK, part.length):
                part._count(chunk)
                check()
            yield part
        finally:
            os.close(fd)

    @property
    def inode(self) -> int:
        return os.fstat(self.fd).st_ino

    def append(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            written = os.pwrite(self.fd, view, self.length)
            self._count(view[:written])
            view = view[written:]

    def clear(self) -> None:
        """Discard all bytes."""
        os.ftruncate(self.fd, 0)
        self.length = 0
        self._digest = content_digest(self._etag, self._size)

    def is_intact(self) -> bool:
        """Whether the file is complete and has the expected hash."""
        if self.length != self._size:
            return False
        return self._digest is None or self._digest.hexdigest() == self._etag

    def _count(self, chunk: bytes | memoryview) -> None:
        self.length += len(chunk)
        if self._digest is not None:
            self._digest.update(chunk)


def _download_by_xet(file: HubFile, metadata: MetadataCache, callbacks: DownloadCallbacks) -> None:
    """Let huggingface_hub transfer a file, and check its content."""

    def progressed(nbytes: int) -> None:
        callbacks.check()
        callbacks.progressed(nbytes)

    for _ in range(ATTEMPTS):
        hub_call(
            lambda: download_by_xet(file, progressed),
            repo=file.repo,
            revision=file.commit,
            backoff=DOWNLOAD,
            sleep=callbacks.sleep,
        )
        path = file.content
        if path is not None and is_intact(path, file.etag, file.size, callbacks.check):
            metadata.record_verdict(path, file.etag, True)
            callbacks.started(path.stat().st_ino)
            return
        callbacks.event("download_damaged", repo=file.repo, file=file.name)
    raise _always_damaged(file)


def _always_damaged(file: HubFile) -> Resumable:
    return Resumable(
        "source_unavailable",
        f"{file.name} of {file.repo}@{file.commit} was downloaded {ATTEMPTS} times, and its "
        f"content never had the expected hash ({file.etag}).\n"
        "Something between the Hub and this machine damages the file: try another network or "
        "HF_ENDPOINT, then resume.",
    )
