"""A model on the Hub: pinned to a commit, planned from its headers, downloaded only as needed.

Everything goes through the standard cache of huggingface_hub, which other programs use, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from resumerge.errors import InputError, Resumable, refuse
from resumerge.hub.cache import COMMIT, HubFile
from resumerge.hub.client import is_offline
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.hub.snapshot import RepoSnapshot, cached_snapshot, hub_snapshot, with_etags
from resumerge.recipe.types import ModelRef
from resumerge.sources.checkpoint_files import checkpoint_files, checkpoint_tensors, no_such_file
from resumerge.sources.companions import companion_files
from resumerge.sources.formats.base import Header
from resumerge.sources.formats.registry import UNREADABLE, looks_like_weights, read_header
from resumerge.sources.hub.files import describe_missing, ensure_cached, offline_error
from resumerge.sources.hub.remote_headers import remote_header
from resumerge.sources.index import (
    MODEL,
    Contents,
    check_index,
    combined,
    read_config,
    read_index,
)
from resumerge.sources.pipelines import PIPELINE, is_pipeline, read_pipeline
from resumerge.sources.types import Source, SourceFile
from resumerge.tensors import Stored

NO_COMPONENTS: Mapping[str, str] = {}

HEADER_THREADS = 8
"""Headers read at once: a model of 200 files takes 200 round trips."""


def open_hub(
    ref: ModelRef,
    *,
    revision: str | None = None,
    offline: bool = False,
    metadata: MetadataCache | None = None,
    contents: Contents = MODEL,
) -> Source:
    """Pin a Hub model or adapter and read the headers of its weight files.

    The config and the index are downloaded. Headers are read by range requests, or from the cached
    file if there is one. No weight file is downloaded.

    Args:
        ref: the model as the recipe names it.
        revision: the commit that an earlier attempt pinned, in place of the recipe's branch.
        offline: use the cache only, as with HF_HUB_OFFLINE.
        metadata: the metadata cache of Hub files.
        contents: whether the repo should hold a model or an adapter.

    Returns:
        The source, at a commit. A file is `present` if the cache has all of it and it is not known
        to be damaged.

    Raises:
        InputError: no such model, no access, no weights in it, damaged headers; offline, with
            the names of the missing files.
        Resumable: the network failed.

    Example:
        >>> source = open_hub(ModelRef("org/name", "org/name"))  # doctest: +SKIP
        >>> fetch(source, [name for name, file in source.files.items() if not file.present])
    """
    wanted = revision or ref.revision
    metadata = metadata or MetadataCache()
    if offline or is_offline():
        return _open(ref, cached_snapshot(ref.name, wanted, metadata), metadata, contents)
    try:
        return _open(ref, hub_snapshot(ref.name, wanted, metadata), metadata, contents)
    except (Resumable, InputError):
        # A commit never changes, so the cache can stand in for the Hub; a branch may have moved.
        if wanted and COMMIT.fullmatch(wanted):
            with suppress(InputError):
                return _open(ref, cached_snapshot(ref.name, wanted, metadata), metadata, contents)
        raise


def _open(
    ref: ModelRef, snapshot: RepoSnapshot, metadata: MetadataCache, contents: Contents
) -> Source:
    if ref.file:
        return _open_file(ref, snapshot, metadata)
    if is_pipeline(contents, snapshot.files):
        return _open_pipeline(ref, snapshot, metadata)
    tensors, headers, _ = _read_weights(ref, snapshot, metadata, contents)
    config = read_config(snapshot.folder, contents.config)
    tensors, notes = checkpoint_tensors(ref.text, headers, tensors, config)
    return _source(ref, snapshot, metadata, config, tensors, headers, notes)


def _open_pipeline(ref: ModelRef, snapshot: RepoSnapshot, metadata: MetadataCache) -> Source:
    """Open all components of a pipeline as one model."""
    snapshot = _with_cached(snapshot, metadata, [PIPELINE])
    found = read_pipeline(
        read_config(snapshot.folder, PIPELINE),
        snapshot.files,
        lambda part: _read_weights(ref, snapshot, metadata, part),
    )
    _, notes = checkpoint_tensors(ref.text, found.headers, found.tensors, {})
    return _source(ref, snapshot, metadata, {}, found.tensors, found.headers, notes, found.stems)


def _with_cached(
    snapshot: RepoSnapshot, metadata: MetadataCache, names: Iterable[str]
) -> RepoSnapshot:
    """The snapshot, after small files of it have been downloaded into the cache."""
    snapshot = with_etags(snapshot, names)
    for name in sorted(names):
        ensure_cached(snapshot.files[name], metadata, offline=not snapshot.online)
    return snapshot


def _read_weights(
    ref: ModelRef, snapshot: RepoSnapshot, metadata: MetadataCache, contents: Contents
) -> tuple[dict[str, Stored], dict[str, Header], str]:
    """The tensors in weight files, the header of each file, and the index or else the only file."""
    index, single = next(
        (pair for pair in contents.weights if not snapshot.files.keys().isdisjoint(pair)),
        contents.weights[0],
    )
    snapshot = _with_cached(snapshot, metadata, snapshot.files.keys() & {contents.config, index})
    names = _weight_names(snapshot, metadata, contents, index, single)
    snapshot = with_etags(snapshot, names)
    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        found = pool.map(lambda n: _header(snapshot.files[n], metadata, snapshot.online), names)
        headers = dict(zip(names, found))
    tensors = combined(headers, ref.text)
    if index not in snapshot.files:
        return tensors, headers, single
    check_index(snapshot.folder / index, tensors, contents.prefix)
    return tensors, headers, index


def _source(
    ref: ModelRef,
    snapshot: RepoSnapshot,
    metadata: MetadataCache,
    config: Mapping[str, Any],
    tensors: Mapping[str, Stored],
    names: Iterable[str],
    notes: tuple[str, ...],
    components: Mapping[str, str] = NO_COMPONENTS,
) -> Source:
    sizes = {name: max(0, file.size) for name, file in snapshot.files.items()}
    companions = companion_files(sizes, components)
    snapshot = with_etags(snapshot, [*names, *companions])
    return Source(
        ref,
        "hub",
        snapshot.folder,
        snapshot.commit,
        config,
        tensors,
        {name: _source_file(snapshot.files[name], metadata) for name in names},
        {name: _source_file(snapshot.files[name], metadata) for name in companions},
        notes=notes,
        components=components,
    )


def _open_file(ref: ModelRef, snapshot: RepoSnapshot, metadata: MetadataCache) -> Source:
    """Open a repo's single file that the recipe names."""
    where = f"{snapshot.repo}@{snapshot.commit}"
    if ref.file not in snapshot.files:
        if snapshot.online:
            raise no_such_file(where, ref.file, snapshot.files)
        raise offline_error(snapshot.repo, snapshot.commit, [ref.file])
    file = with_etags(snapshot, [ref.file]).files[ref.file]
    headers = {ref.file: _header(file, metadata, snapshot.online)}
    tensors, notes = checkpoint_tensors(ref.text, headers, combined(headers, ref.text), {})
    files = {ref.file: _source_file(file, metadata)}
    folder, commit = snapshot.folder, snapshot.commit
    return Source(ref, "hub", folder, commit, {}, tensors, files, single=True, notes=notes)


def _weight_names(
    snapshot: RepoSnapshot, metadata: MetadataCache, contents: Contents, index: str, single: str
) -> list[str]:
    """The names of the weight files, by the same rule as for a local folder."""
    names: list[str] = []
    is_listed = snapshot.online or bool(metadata.listing(snapshot.repo, snapshot.commit))
    if index in snapshot.files:
        names = sorted(set(read_index(snapshot.folder / index, contents.prefix).values()))
    elif single in snapshot.files:
        names = [single]
    elif contents.may_have_any_name(snapshot.files):
        names = checkpoint_files(snapshot.files)
    if not names and (snapshot.online or any(name.endswith(UNREADABLE) for name in snapshot.files)):
        weights_first = sorted(
            snapshot.files, key=lambda name: (not looks_like_weights(name), name)
        )
        raise contents.missing(f"{snapshot.repo}@{snapshot.commit}", weights_first)
    absent = [name for name in names if name not in snapshot.files]
    if not snapshot.online:
        absent += [
            name
            for name in names
            if (file := snapshot.files.get(name)) and not file.content
            if metadata.header(file.etag) is None
        ]
        absent += [] if names else [contents.expected]
        if contents.config not in snapshot.files and not is_listed:
            absent.append(contents.config)
        if absent:
            raise offline_error(snapshot.repo, snapshot.commit, sorted(absent))
    elif absent:
        raise refuse(
            "The index names files that the repo does not have",
            where=f"{snapshot.repo}@{snapshot.commit}",
            expected=f"{len(names)} files",
            found=f"missing: {', '.join(absent)}",
            fix="name another revision, or ask the repo's owner to upload them",
        )
    return names


def _header(file: HubFile, metadata: MetadataCache, online: bool) -> Header:
    if online:
        file.link()  # another commit may have the same content
    path = file.pointer
    if not (file.whole and path.is_file()) or metadata.verdict(path, file.etag) is False:
        if not online and metadata.header(file.etag) is None:
            raise offline_error(file.repo, file.commit, [describe_missing(file)])
        return remote_header(file, metadata)
    try:
        return read_header(path, file.name)
    except InputError:
        if not online:
            raise
        return remote_header(file, metadata)  # shows whether only the cached file is damaged


def _source_file(file: HubFile, metadata: MetadataCache) -> SourceFile:
    path = file.content
    present = path is not None and file.whole and metadata.verdict(path, file.etag) is not False
    return SourceFile(file.name, file.size, {"etag": file.etag}, present)
