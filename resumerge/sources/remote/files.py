"""The files of a remote model: checked in the cache, or downloaded into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from resumerge.buckets.file import BucketFile, model_folder
from resumerge.event_kinds import EventKind
from resumerge.hub.cache import snapshot_folder
from resumerge.hub.file import HubFile
from resumerge.remote.cache_errors import usable_cache
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.download import download
from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.companions import folder_companions
from resumerge.sources.types import Source


def remote_file(source: Source, name: str) -> RemoteFile:
    """Return a weight file or companion of a remote model, by its name in the source."""
    source, name = source.part_of(name)
    file = source.files[name] if name in source.files else source.companions[name]
    model, etag = source.ref.name, str(file.identity["etag"])
    if source.kind == "bucket":
        folder = source.folder
        return BucketFile(model, folder.name, name, file.size, etag, folder.parents[1])
    return HubFile(model, source.revision or "", name, file.size, etag)


def uncached(source: Source) -> Source:
    """Return a source whose remote files count as not cached: they are downloaded or streamed."""
    files = {
        name: replace(file, present=False) if source.part_of(name)[0].is_remote else file
        for name, file in source.files.items()
    }
    return replace(source, files=files)


def on_this_machine(source: Source) -> Source:
    """Return a source from another machine with the folders of this machine's caches.

    Its remote files count as not cached. If `Source.streams` is true, all of them are streamed.
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

    A cached file is read and compared once, and trusted afterwards until it changes. A damaged or
    missing file is downloaded.

    Args:
        file: the file at the version that its source pins; it need not be in the cache.
        metadata: the metadata cache of remote files.
        callbacks: the callbacks of a download; None for no callbacks.
        offline: do not use the network.
        reserve: called before a download with the number of bytes that it needs on the disk.

    Raises:
        InputError: the server denies the file; offline, the file is missing or damaged.
        Resumable: the network failed after all retries, or the disk is full. The received bytes
            stay in the cache.
    """
    callbacks = callbacks or DownloadCallbacks()
    while not check_cached(file, metadata, callbacks):
        if offline or file.is_offline:
            raise file.offline_error([describe_missing(file)])
        reserve(file.size - partial_bytes(file))
        with usable_cache(file.where, file.cache):
            download(file, metadata, callbacks, damaged=file.inode)
    with usable_cache(file.where, file.cache):
        file.link()


def check_cached(file: RemoteFile, metadata: MetadataCache, callbacks: DownloadCallbacks) -> bool:
    """Return whether the cache has a file, complete and intact.

    The file is read if the metadata cache has no verdict on it. The new verdict is recorded.
    """
    path = file.content
    if path is None:
        return False
    verdict = metadata.verdict(path, file.etag)
    if verdict is None:
        verdict = file.is_intact(path, callbacks.check)
        metadata.record_verdict(path, file.etag, verdict)
        if not verdict:
            damage_id = max(
                (damage.id for damage in metadata.damages(path, since="")), default=None
            )
            callbacks.on_event(
                EventKind.SOURCE_DAMAGED, model=file.model, file=file.name, damage=damage_id
            )
    return verdict


def fetch(
    source: Source,
    names: Iterable[str],
    metadata: MetadataCache | None = None,
    callbacks: DownloadCallbacks | None = None,
    *,
    offline: bool = False,
) -> None:
    """Download files of a source into the cache, one after the other.

    Nothing is done for a source that is not remote.

    Args:
        source: the source that has the files; for one with an adapter, its carrier.
        names: names of `source.files` or `source.companions`; `source.contained` is ignored.
        metadata: the metadata cache of remote files; None for the default one.
        callbacks: the callbacks of a download; None for no callbacks.
        offline: do not use the network.

    Raises:
        InputError: the server denies a file; offline, the error lists all files that are missing or
            damaged.
        Resumable: the network failed after all retries, or the disk is full. The received bytes
            stay in the cache.
    """
    if not source.is_remote:
        return
    metadata, callbacks = metadata or MetadataCache(), callbacks or DownloadCallbacks()
    files = [remote_file(source, name) for name in sorted({*names} - {*source.contained.names})]
    if files and (offline or files[0].is_offline):
        missing_files = [
            describe_missing(file) for file in files if not check_cached(file, metadata, callbacks)
        ]
        if missing_files:
            raise files[0].offline_error(missing_files)
    for file in files:
        ensure_cached(file, metadata, callbacks, offline=offline)


def list_companions(source: Source) -> list[str]:
    """Return the names of a source's companions, sorted; offline, only those in the cache.

    They include the companions that the weight file contains. A source of a single weight file has
    no companions. Code beside a model in GGUF is not a companion: it belongs to another model.
    """
    if source.single:
        return []
    if source.is_remote:
        names = sorted(source.companions)
    else:
        names = folder_companions(source.folder, source.components)
    names = sorted({*names, *source.contained.names})
    return [name for name in names if not name.endswith(".py")] if source.led_to_by_file else names


def partial_bytes(file: RemoteFile) -> int:
    """Return the size of the partial file of an earlier download, in bytes; 0 without one."""
    return min(file.size, file.partial.stat().st_size) if file.partial.exists() else 0


def describe_missing(file: RemoteFile) -> str:
    """Return a file's name for a list of missing files; a damaged file's fault is appended."""
    path = file.content
    if path is None:
        return file.name
    size = path.stat().st_size
    return file.name + (
        " (damaged)" if size == file.size else f" (damaged: {size} of {file.size} bytes)"
    )
