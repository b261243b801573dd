"""The download of one remote file, which continues after interruptions and is verified on arrival.

The clouds' libraries do not continue a failed download: huggingface_hub deletes the partial file,
boto3 writes none. Therefore this package has its own downloader. It appends the bytes to a partial
file in the cache. After an error or a kill, the next download requests the missing bytes
(``Range``) on the condition that the file is unchanged (``If-Range``, ``If-Match``), and accepts
any valid response. The content is hashed as it arrives. A file gets its name in the cache only if
the hash is correct.
"""

from __future__ import annotations

from collections.abc import Callable

from resumerge.event_kinds import EventKind
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.file import DOWNLOAD, RemoteFile, Response, check_answer
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.remote.partial_file import PartialFile
from resumerge.storage import Storage

ATTEMPTS = 3
"""The number of downloads of a file with wrong content after which the download fails."""


def download(
    file: RemoteFile,
    metadata: MetadataCache,
    callbacks: DownloadCallbacks,
    *,
    damaged: int | None = None,
) -> None:
    """Download a file into the cache. Call this only if the cache has no intact copy.

    The verdict on the content is recorded in `metadata`. If another process is downloading the same
    content, this one waits for that process and uses its copy, which the caller has to verify.

    Args:
        file: the file at one version, of which the cache has no intact copy.
        metadata: gets the verdict on the content, and the ETag of an unfinished download.
        callbacks: the functions to call during the download.
        damaged: the inode of the damaged copy to replace; None if the cache has no such copy.

    Raises:
        InputError: the server denies the file.
        Resumable: the network failed after all retries, the disk is full, or the content was wrong
            in each of `ATTEMPTS` downloads.
    """
    transfer = file.whole_transfer()
    if transfer is not None:
        _download_whole(file, transfer, metadata, callbacks)
        return
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    with file.locked(callbacks.check):
        if file.whole and file.inode != damaged:
            return  # another process downloaded it; the caller checks whether it is intact
        download_by_ranges(file, metadata, callbacks)


def download_by_ranges(
    file: RemoteFile, metadata: MetadataCache, callbacks: DownloadCallbacks
) -> None:
    """Download a file by range requests to its path in the cache; see `download`."""
    begin_comparison = file.call(file.expected_content, sleep=callbacks.sleep)
    with PartialFile.opened(
        file.partial, file.size, begin_comparison, callbacks.check
    ) as partial_file:
        callbacks.on_start(partial_file.inode)
        for _ in range(ATTEMPTS):
            file.call(
                lambda: _receive(file, partial_file, metadata, callbacks),
                backoff=DOWNLOAD,
                sleep=callbacks.sleep,
                progress=lambda: partial_file.length,
            )
            if partial_file.is_intact():
                Storage().sync_data(partial_file.fd)
                file.put(file.partial, partial_file.content)
                metadata.store_validator(file.partial, None)
                metadata.record_verdict(file.content or file.blob, file.etag, True)
                return
            callbacks.on_event(EventKind.DOWNLOAD_DAMAGED, repo=file.model, file=file.name)
            partial_file.clear()
            metadata.store_validator(file.partial, None)
    raise file.never_intact(ATTEMPTS)


def _receive(
    file: RemoteFile,
    partial_file: PartialFile,
    metadata: MetadataCache,
    callbacks: DownloadCallbacks,
) -> None:
    """Request the missing bytes once, and append the received bytes to the partial file.

    Raises:
        ConnectionError: the response is incomplete or does not fit.
    """
    if partial_file.length == file.size:
        return
    validator = metadata.validator(file.partial) if partial_file.length else None
    with file.request(partial_file.length, validator=validator) as response:
        callbacks.response = response
        try:
            skip_bytes = _match_response(file, partial_file, response, metadata)
            for chunk in response.chunks:
                new_bytes = chunk[skip_bytes:]
                skip_bytes = max(0, skip_bytes - len(chunk))
                if partial_file.length + len(new_bytes) > file.size:
                    partial_file.clear()
                    raise ConnectionError(
                        f"the server sent more than the {file.size} bytes of {file.name}"
                    )
                if new_bytes:
                    partial_file.append(new_bytes)
                    callbacks.on_progress(partial_file.length)
                callbacks.check()
        finally:
            callbacks.response = None
    if partial_file.length < file.size:
        raise ConnectionError(
            f"the server sent only {partial_file.length} of {file.size} bytes of {file.name}"
        )


def _match_response(
    file: RemoteFile, partial_file: PartialFile, response: Response, metadata: MetadataCache
) -> int:
    """Compare a response with the partial file, and clear the partial file if they do not match.

    Returns:
        the number of bytes at the start of the body that the partial file already has.

    Raises:
        ConnectionError: the response does not match. A retry requests the file again.
    """
    etag = str(response.headers.get("ETag") or "")
    strong_etag = etag if etag.startswith('"') else None
    validator = metadata.validator(file.partial)
    has_changed = (
        partial_file.length > 0
        and strong_etag is not None
        and validator is not None
        and strong_etag != validator
    )
    if strong_etag != validator:
        metadata.store_validator(file.partial, strong_etag)
    if response.status == 206:
        try:
            check_answer(file, response, partial_file.length, file.size)
            if has_changed:
                raise ConnectionError(f"the server has another version of {file.name} now")
        except ConnectionError:
            partial_file.clear()
            raise
        return 0
    if response.status == 416:
        partial_file.clear()
        raise ConnectionError(f"the server says that {file.name} is shorter than expected")
    body_length = response.headers.get("Content-Length")  # of the body before decoding
    if body_length is not None and not response.is_encoded and int(body_length) != file.size:
        raise ConnectionError(
            f"the server sends {body_length} bytes for {file.name}, which has {file.size} bytes"
        )
    if has_changed:
        partial_file.clear()
    return partial_file.length


def _download_whole(
    file: RemoteFile,
    transfer: Callable[[Callable[[int], None]], None],
    metadata: MetadataCache,
    callbacks: DownloadCallbacks,
) -> None:
    """Download a file with the server's own library (`transfer`), and verify its content."""

    def progressed(nbytes: int) -> None:
        callbacks.check()
        callbacks.on_progress(nbytes)

    for _ in range(ATTEMPTS):
        file.call(lambda: transfer(progressed), backoff=DOWNLOAD, sleep=callbacks.sleep)
        path = file.content
        if path is not None and file.is_intact(path, callbacks.check):
            metadata.record_verdict(path, file.etag, True)
            callbacks.on_start(path.stat().st_ino)
            return
        callbacks.on_event(EventKind.DOWNLOAD_DAMAGED, repo=file.model, file=file.name)
    raise file.never_intact(ATTEMPTS)
