"""A model that is elsewhere: planned from its headers, downloaded only as needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from resumerge.errors import InputError, refuse
from resumerge.recipe.types import ModelRef
from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.remote.snapshot import Snapshot
from resumerge.sources.checkpoint_files import checkpoint_files, checkpoint_tensors, no_such_file
from resumerge.sources.companions import companion_files
from resumerge.sources.formats.registry import UNREADABLE, looks_like_weights, read_header
from resumerge.sources.formats.weight_format import Header
from resumerge.sources.index import (
    Contents,
    check_index,
    combined,
    read_config,
    read_index,
)
from resumerge.sources.pipelines import PIPELINE, is_pipeline, read_pipeline
from resumerge.sources.remote.files import describe_missing, ensure_cached
from resumerge.sources.remote.headers import remote_header
from resumerge.sources.types import Source, SourceFile
from resumerge.tensors import Stored

NO_COMPONENTS: Mapping[str, str] = {}

HEADER_THREADS = 8
"""The number of headers read at once: a model of 200 files takes 200 round trips."""


def open_snapshot(
    ref: ModelRef, snapshot: Snapshot, metadata: MetadataCache, contents: Contents
) -> Source:
    """Read the headers of a model's weight files, its config and its index.

    The config and the index are downloaded. Headers are read by range requests, or from the cached
    file if there is one. No weight file is downloaded.

    Args:
        ref: the model as the recipe names it.
        snapshot: the model's files at a revision.
        metadata: the metadata cache of remote files.
        contents: whether the snapshot should hold a model or an adapter.

    Returns:
        The source. A file is `present` if the cache has all of it and it is not known to be
        damaged.

    Raises:
        InputError: no weights in it, damaged headers, no access; offline, with the names of the
            missing files.
        Resumable: the network failed.
    """
    if ref.file:
        return _open_file(ref, snapshot, metadata)
    if is_pipeline(contents, snapshot.files):
        return _open_pipeline(ref, snapshot, metadata)
    tensors, headers, _ = _read_weights(ref, snapshot, metadata, contents)
    config = read_config(snapshot.folder, contents.config)
    tensors, notes = checkpoint_tensors(ref.text, headers, tensors, config)
    return _source(ref, snapshot, metadata, config, tensors, headers, notes)


def _open_pipeline(ref: ModelRef, snapshot: Snapshot, metadata: MetadataCache) -> Source:
    """Open all components of a pipeline as one model."""
    snapshot = _with_cached(snapshot, metadata, [PIPELINE])
    found = read_pipeline(
        read_config(snapshot.folder, PIPELINE),
        snapshot.files,
        lambda part: _read_weights(ref, snapshot, metadata, part),
    )
    _, notes = checkpoint_tensors(ref.text, found.headers, found.tensors, {})
    return _source(ref, snapshot, metadata, {}, found.tensors, found.headers, notes, found.stems)


def _with_cached(snapshot: Snapshot, metadata: MetadataCache, names: Iterable[str]) -> Snapshot:
    """Return the snapshot, after downloading small files of it into the cache."""
    snapshot = snapshot.described(names)
    for name in sorted(names):
        ensure_cached(snapshot.files[name], metadata, offline=not snapshot.online)
    return snapshot


def _read_weights(
    ref: ModelRef, snapshot: Snapshot, metadata: MetadataCache, contents: Contents
) -> tuple[dict[str, Stored], dict[str, Header], str]:
    """Return the tensors, each file's header, and the name of the index or only weight file."""
    index, single = next(
        (pair for pair in contents.weights if not snapshot.files.keys().isdisjoint(pair)),
        contents.weights[0],
    )
    snapshot = _with_cached(snapshot, metadata, snapshot.files.keys() & {contents.config, index})
    names = _weight_names(snapshot, metadata, contents, index, single)
    snapshot = snapshot.described(names)
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
    snapshot: Snapshot,
    metadata: MetadataCache,
    config: Mapping[str, Any],
    tensors: Mapping[str, Stored],
    names: Iterable[str],
    notes: tuple[str, ...],
    components: Mapping[str, str] = NO_COMPONENTS,
) -> Source:
    sizes = {name: max(0, file.size) for name, file in snapshot.files.items()}
    companions = companion_files(sizes, components)
    snapshot = snapshot.described([*names, *companions])
    return Source(
        ref,
        snapshot.kind,
        snapshot.folder,
        snapshot.pin(names),
        config,
        tensors,
        {name: _source_file(snapshot.files[name], metadata) for name in names},
        {name: _source_file(snapshot.files[name], metadata) for name in companions},
        notes=notes,
        components=components,
    )


def _open_file(ref: ModelRef, snapshot: Snapshot, metadata: MetadataCache) -> Source:
    """Open the single file that the recipe names."""
    if ref.file not in snapshot.files:
        if snapshot.online:
            raise no_such_file(snapshot.version, ref.file, snapshot.files)
        raise snapshot.offline_error([ref.file])
    file = snapshot.described([ref.file]).files[ref.file]
    headers = {ref.file: _header(file, metadata, snapshot.online)}
    tensors, notes = checkpoint_tensors(ref.text, headers, combined(headers, ref.text), {})
    files = {ref.file: _source_file(file, metadata)}
    return Source(
        *(ref, snapshot.kind, snapshot.folder, snapshot.pin(files), {}, tensors, files),
        single=True,
        notes=notes,
    )


def _weight_names(
    snapshot: Snapshot, metadata: MetadataCache, contents: Contents, index: str, single: str
) -> list[str]:
    """Return the names of the weight files, by the same rule as for a local folder."""
    names: list[str] = []
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
        raise contents.missing(snapshot.version, weights_first)
    absent = [name for name in names if name not in snapshot.files]
    if not snapshot.online:
        absent += [
            name
            for name in names
            if (file := snapshot.files.get(name)) and not file.content
            if metadata.header(file.identity) is None
        ]
        absent += [] if names else [contents.expected]
        if contents.config not in snapshot.files and not snapshot.is_listing:
            absent.append(contents.config)
        if absent:
            raise snapshot.offline_error(sorted(absent))
    elif absent:
        raise refuse(
            "The index names files that do not exist",
            where=snapshot.version,
            expected=f"{len(names)} files",
            found=f"missing: {', '.join(absent)}",
            fix=snapshot.fix_absent,
        )
    return names


def _header(file: RemoteFile, metadata: MetadataCache, online: bool) -> Header:
    if online:
        file.link()  # another version may have the same content
    path = file.pointer
    if not (file.whole and path.is_file()) or metadata.verdict(path, file.etag) is False:
        if not online and metadata.header(file.identity) is None:
            raise file.offline_error([describe_missing(file)])
        return remote_header(file, metadata)
    try:
        return read_header(path, file.name)
    except InputError:
        if not online:
            raise
        return remote_header(file, metadata)  # shows whether only the cached file is damaged


def _source_file(file: RemoteFile, metadata: MetadataCache) -> SourceFile:
    path = file.content
    present = path is not None and file.whole and metadata.verdict(path, file.etag) is not False
    return SourceFile(file.name, file.size, {"etag": file.etag}, present)
