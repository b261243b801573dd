"""Files of a model that is elsewhere: checked in the cache, or downloaded into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from resumerge.buckets.file import BucketFile, model_folder
from resumerge.hub.cache import snapshot_folder
from resumerge.hub.file import HubFile
from resumerge.remote.cache_errors import usable_cache
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.download import download
from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.companions import folder_companions
from resumerge.sources.types import Source

DAMAGED = "source_damaged"
"""Event: the content of a cached file is not what it should be."""


def remote_file(source: Source, name: str) -> RemoteFile:
    """A weight file or a companion of a model that is elsewhere, by its name in the source."""
    source, name = source.part_of(name)
    file = source.files[name] if name in source.files else source.companions[name]
    model, etag = source.ref.name, str(file.identity["etag"])
    if source.kind == "bucket":
        folder = source.folder
        return BucketFile(model, folder.name, name, file.size, etag, folder.parents[1])
    return HubFile(model, source.revision or "", name, file.size, etag)


def uncached(source: Source) -> Source:
    """A source as it is where the cache has nothing of it: its files are downloaded or streamed."""
    files = {
        name: replace(file, present=False) if source.part_of(name)[0].is_remote else file
        for name, file in source.files.items()
    }
    return replace(source, files=files)


def on_this_machine(source: Source) -> Source:
    """A source that was opened on another machine: its files go to the caches of this one.

    What the other machine had of them is nothing to this one: with `streams` all is streamed.
    """
    return uncached(_with_folders_of_this_machine(source))


def _with_folders_of_this_machine(source: Source) -> Source:
    if source.base is not None and source.adapter is not None:
        base, adapter = map(_with_folders_of_this_machine, (source.base, source.adapter))
        return replace(source, base=base, adapter=adapter, folder=base.folder)
    if source.kind == "bucket":
        folder = model_folder(source.ref.name) / source.folder.parent.name / source.folder.name
        return replace(source, folder=folder)
    if source.kind == "hub":
        return replace(source, folder=snapshot_folder(source.ref.name, source.revision or ""))
    return source


def ensure_cached(
    file: RemoteFile,
    metadata: MetadataCache,
    callbacks: DownloadCallbacks | None = None,
    *,
    offline: bool = False,
    reserve: Callable[[int], None] = lambda needed: None,
) -> None:
    """Make sure that the cache has a file, complete and intact.

    A cached file is read once, and trusted afterwards until it changes. A file that is damaged or
    missing is downloaded.

    Args:
        reserve: called before a download with the number of bytes that it needs on the disk.

    Raises:
        InputError: the server denies the file; offline, it is missing or damaged.
        Resumable: the network failed after all retries, or the disk is full. The bytes that
            arrived stay in the cache.
    """
    callbacks = callbacks or DownloadCallbacks()
    while not is_cached(file, metadata, callbacks):
        if offline or file.is_offline:
            raise file.offline_error([describe_missing(file)])
        reserve(file.size - partial_bytes(file))
        with usable_cache(file.where, file.cache):
            download(file, metadata, callbacks, damaged=file.inode)
    with usable_cache(file.where, file.cache):
        file.link()


def is_cached(file: RemoteFile, metadata: MetadataCache, callbacks: DownloadCallbacks) -> bool:
    """Whether the cache has a file, complete and intact. Reads the file if that is not known."""
    path = file.content
    if path is None:
        return False
    verdict = metadata.verdict(path, file.etag)
    if verdict is None:
        verdict = file.is_intact(path, callbacks.check)
        metadata.record_verdict(path, file.etag, verdict)
        if not verdict:
            latest = max((damage.id for damage in metadata.damages(path, since="")), default=None)
            callbacks.event(DAMAGED, model=file.model, file=file.name, damage=latest)
    return verdict


def fetch(
    source: Source,
    names: Iterable[str],
    metadata: MetadataCache | None = None,
    callbacks: DownloadCallbacks | None = None,
    *,
    offline: bool = False,
) -> None:
    """Download files of a source into the cache, one after the other. Local sources need nothing.

    Args:
        names: of `source.files` or `source.companions`.

    Raises:
        InputError: the server denies a file; offline, with all files that are missing or damaged.
        Resumable: the network failed after all retries, or the disk is full. The bytes that
            arrived stay in the cache.
    """
    if not source.is_remote:
        return
    metadata, callbacks = metadata or MetadataCache(), callbacks or DownloadCallbacks()
    files = [remote_file(source, name) for name in sorted(set(names))]
    if files and (offline or files[0].is_offline):
        missing = [
            describe_missing(file) for file in files if not is_cached(file, metadata, callbacks)
        ]
        if missing:
            raise files[0].offline_error(missing)
    for file in files:
        ensure_cached(file, metadata, callbacks, offline=offline)


def list_companions(source: Source) -> list[str]:
    """Names of the files beside the weights: see `companion_files`. Offline, the cached ones.

    A single weight file has none.
    """
    if source.single:
        return []
    if source.is_remote:
        return sorted(source.companions)
    return folder_companions(source.folder, source.components)


def partial_bytes(file: RemoteFile) -> int:
    """Number of bytes that an earlier download left in the partial file."""
    return min(file.size, file.partial.stat().st_size) if file.partial.exists() else 0


def describe_missing(file: RemoteFile) -> str:
    """A file's name, with what is wrong with it if it is there, for a list of missing files."""
    path = file.content
    if path is None:
        return file.name
    size = path.stat().st_size
    return file.name + (
        " (damaged)" if size == file.size else f" (damaged: {size} of {file.size} bytes)"
    )
