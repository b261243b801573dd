"""Download of one file of the Hub, which goes on where it was cut off, checked as it comes.

The bytes grow in the cache's partial file. However a download ends, by an error or a kill, the
next one asks for what is missing (``Range``), on the condition that the file is still the one that
it was (``If-Range``), and takes whatever the server makes of that. The content's hash is computed
on the way; only what has the hash that its name says is given that name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from resumerge.errors import Resumable
from resumerge.hub.cache import HubFile
from resumerge.hub.callbacks import Watch
from resumerge.hub.client import DOWNLOAD_WAITS, hub_call
from resumerge.hub.content_hash import CHUNK, Digest, content_digest, is_intact
from resumerge.hub.http import Answer, get
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.hub.progress import progress_arguments

TRIES = 3
"""Downloads of a file whose content turns out to be wrong."""

XET_ONLY = 50_000_000_000
"""Bytes above which the Hub serves a file through Xet alone."""


def download(
    file: HubFile, records: MetadataCache, watch: Watch, *, unfit: int | None = None
) -> None:
    """Bring a file into the cache, where no intact one is.

    The verdict is noted in `records`. Another process that downloads the same content is waited
    for.

    Args:
        unfit: inode of the damaged file that is to be replaced, if there is one.

    Raises:
        InputError: the Hub denies the file.
        Resumable: the network failed for good, the disk is full, or the content is never right.
    """
    if _xet_has_it(file):
        _through_xet(file, records, watch)
        return
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    with file.locked(watch.check):
        if file.whole and file.inode != unfit:
            return  # another process was quicker; whether it is intact is for the caller to see
        download_by_ranges(file, records, watch)


def download_by_ranges(file: HubFile, records: MetadataCache, watch: Watch) -> None:
    """Bring a file to where it says that it belongs, over HTTP alone; see `download`."""
    with _Part.of(file, watch.check) as part:
        watch.began(part.inode)
        for _ in range(TRIES):
            hub_call(
                lambda: _receive(file, part, records, watch),
                repo=file.repo,
                revision=file.commit,
                waits=DOWNLOAD_WAITS,
                pause=watch.pause,
                progress=lambda: part.length,
            )
            if part.is_right():
                os.fdatasync(part.fd)
                file.put(file.partial)
                records.keep_validator(file.partial, None)
                records.settle(file.content or file.blob, file.etag, True)
                return
            watch.event("download_damaged", repo=file.repo, file=file.name)
            part.reset()
            records.keep_validator(file.partial, None)
    raise _never_right(file)


def _receive(file: HubFile, part: _Part, records: MetadataCache, watch: Watch) -> None:
    """One request for the bytes that are missing, and as many of them as come."""
    from huggingface_hub import hf_hub_url

    if part.length == file.size:
        return
    headers = {}
    if part.length:
        headers["Range"] = f"bytes={part.length}-"
        validator = records.validator(file.partial)
        if validator:
            headers["If-Range"] = validator
    with get(hf_hub_url(file.repo, file.name, revision=file.commit), headers) as answer:
        watch.answer = answer
        try:
            skip = _reconcile(file, part, answer, records)
            for chunk in answer.chunks:
                new = chunk[skip:]
                skip = max(0, skip - len(chunk))
                if part.length + len(new) > file.size:
                    part.reset()
                    raise ConnectionError(f"more than {file.size} bytes came of {file.name}")
                if new:
                    part.append(new)
                    watch.tell(part.length)
                watch.check()
        finally:
            watch.answer = None
    if part.length < file.size:
        raise ConnectionError(f"{part.length} of {file.size} bytes came of {file.name}")


def _reconcile(file: HubFile, part: _Part, answer: Answer, records: MetadataCache) -> int:
    """Bring the partial file and what the server is about to send into agreement.

    Returns:
        How many bytes of the body are there already.

    Raises:
        ConnectionError: they do not fit; the next attempt is to ask again.
    """
    etag = str(answer.headers.get("ETag") or "")
    strong = etag if etag.startswith('"') else None
    known = records.validator(file.partial)
    changed = part.length > 0 and strong is not None and known is not None and strong != known
    encoded = (answer.headers.get("Content-Encoding") or "identity") != "identity"
    if strong != known:
        records.keep_validator(file.partial, strong)
    if answer.status == 206:
        span = re.match(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range") or "")
        fits = span and int(span[1]) == part.length and span[2] in (str(file.size), "*")
        if fits and not changed and not encoded:
            return 0
        part.reset()
        raise ConnectionError(f"the server sends another part of {file.name} than was asked for")
    if answer.status == 416:
        part.reset()
        raise ConnectionError(f"the server says that {file.name} has fewer bytes")
    length = answer.headers.get("Content-Length")
    if length is not None and not encoded and int(length) != file.size:
        raise ConnectionError(f"{length} bytes are offered of {file.name}, which has {file.size}")
    if changed:
        part.reset()
    return part.length


class _Part:
    """The partial file, its length and the hash of what is in it."""

    def __init__(self, fd: int, etag: str, size: int) -> None:
        self.fd = fd
        self._etag, self._size = etag, size
        self.length = 0
        self._digest: Digest | None = None
        self.reset_digest()

    @classmethod
    @contextmanager
    def of(cls, file: HubFile, check: Callable[[], None]) -> Iterator[_Part]:
        """Open it, and hash what is there already."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(file.partial, flags, 0o666)
        try:
            part = cls(fd, file.etag, file.size)
            if os.fstat(fd).st_size > file.size:
                part.reset()
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

    def reset(self) -> None:
        """Throw away what is there."""
        os.ftruncate(self.fd, 0)
        self.reset_digest()

    def reset_digest(self) -> None:
        self.length = 0
        self._digest = content_digest(self._etag, self._size)

    def is_right(self) -> bool:
        """Whether all bytes are there, with the hash that they should have."""
        if self.length != self._size:
            return False
        return self._digest is None or self._digest.hexdigest() == self._etag

    def _count(self, chunk: bytes | memoryview) -> None:
        self.length += len(chunk)
        if self._digest is not None:
            self._digest.update(chunk)


def _xet_has_it(file: HubFile) -> bool:
    """Whether huggingface_hub would get the file through Xet, and we have no part of it yet.

    A part that is there is finished over HTTP, which serves the same bytes.
    """
    from huggingface_hub import constants, file_download, get_hf_file_metadata, hf_hub_url

    begun = file.partial.exists() and file.partial.stat().st_size > 0 and file.size <= XET_ONLY
    if begun or getattr(constants, "HF_HUB_DISABLE_XET", True):
        return False
    available = getattr(file_download, "is_xet_available", None)
    if available is None or not available():
        return False
    url = hf_hub_url(file.repo, file.name, revision=file.commit)
    found: Any = hub_call(
        lambda: get_hf_file_metadata(url, library_name="resumerge"),
        repo=file.repo,
        revision=file.commit,
    )
    return getattr(found, "xet_file_data", None) is not None


def _through_xet(file: HubFile, records: MetadataCache, watch: Watch) -> None:
    """Leave the transport to huggingface_hub, and check what came."""
    from huggingface_hub import hf_hub_download

    def tell(name: str, nbytes: int) -> None:
        watch.check()
        watch.tell(nbytes)

    for _ in range(TRIES):
        hub_call(
            lambda: hf_hub_download(
                file.repo,
                file.name,
                revision=file.commit,
                force_download=file.content is not None,
                library_name="resumerge",
                **progress_arguments(file.name, tell),
            ),
            repo=file.repo,
            revision=file.commit,
            waits=DOWNLOAD_WAITS,
            pause=watch.pause,
        )
        path = file.content
        if path is not None and is_intact(path, file.etag, file.size, watch.check):
            records.settle(path, file.etag, True)
            watch.began(path.stat().st_ino)
            return
        watch.event("download_damaged", repo=file.repo, file=file.name)
    raise _never_right(file)


def _never_right(file: HubFile) -> Resumable:
    return Resumable(
        "source_unavailable",
        f"{file.name} of {file.repo}@{file.commit} came {TRIES} times with a content that is "
        f"not what its hash says ({file.etag}).\n"
        "Something on the way damages it: try another network or mirror, then resume.",
    )
