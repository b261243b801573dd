"""A model on the Hub: pinned to a commit, planned from its headers, fetched only as needed.

Everything goes through the standard cache of huggingface_hub, so other programs share it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from resumerge.errors import InputError, Resumable, refuse
from resumerge.hub.cache import COMMIT, HubFile
from resumerge.hub.client import is_offline
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.hub.snapshot import RepoSnapshot, cached_snapshot, hub_snapshot, with_etags
from resumerge.recipe.types import ModelRef
from resumerge.sources.companions import companion_files
from resumerge.sources.formats.weight_file import read_weight_header
from resumerge.sources.hub.files import describe_missing, ensure_cached, offline_error
from resumerge.sources.hub.remote_headers import remote_header
from resumerge.sources.index import MODEL, Contents, parse_index
from resumerge.sources.local import check_index, no_weights, read_config
from resumerge.sources.types import Source, SourceFile, TensorInfo

HEADER_THREADS = 8
"""Headers read at once: a model of 200 files is 200 round trips."""


def open_hub(
    ref: ModelRef,
    *,
    revision: str | None = None,
    offline: bool = False,
    metadata: MetadataCache | None = None,
    contents: Contents = MODEL,
) -> Source:
    """Pin a Hub model or adapter and read the headers of its weight files.

    The config and the index come through the cache. Headers are read by range requests, or from
    the cached file where there is one. No weight file is downloaded.

    Args:
        ref: the model as the recipe names it.
        revision: the commit that an earlier attempt was pinned to; instead of the recipe's branch.
        offline: ask the cache only, as with HF_HUB_OFFLINE.
        metadata: what is known of files already.
        contents: whether a model is looked for in it, or an adapter.

    Returns:
        The source, at a commit. A file is `present` when the cache holds it whole and nothing
        says that it is damaged.

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
        # A commit never changes, so the cache may answer for it; for a branch it may not.
        if wanted and COMMIT.fullmatch(wanted):
            with suppress(InputError):
                return _open(ref, cached_snapshot(ref.name, wanted, metadata), metadata, contents)
        raise


def _open(
    ref: ModelRef, snapshot: RepoSnapshot, metadata: MetadataCache, contents: Contents
) -> Source:
    index, single = next(
        (pair for pair in contents.weights if not snapshot.files.keys().isdisjoint(pair)),
        contents.weights[0],
    )
    described = snapshot.files.keys() & {contents.config, index}
    snapshot = with_etags(snapshot, described)
    for name in sorted(described):
        ensure_cached(snapshot.files[name], metadata, offline=not snapshot.online)
    names = _weight_names(snapshot, metadata, contents, index, single)
    beside = companion_files({name: max(0, file.size) for name, file in snapshot.files.items()})
    snapshot = with_etags(snapshot, [*names, *beside])
    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        headers = list(
            pool.map(lambda n: _header(snapshot.files[n], metadata, snapshot.online), names)
        )
    tensors: dict[str, TensorInfo] = {}
    for found in headers:
        twice = tensors.keys() & found.keys()
        if twice:
            raise refuse(
                "Two files of one model hold a tensor of the same name",
                where=ref.text,
                found=min(twice),
            )
        tensors.update(found)
    if index in snapshot.files:
        check_index(snapshot.folder / index, tensors)
    return Source(
        ref,
        "hub",
        snapshot.folder,
        snapshot.commit,
        read_config(snapshot.folder, contents.config),
        tensors,
        {name: _source_file(snapshot.files[name], metadata) for name in names},
        {name: _source_file(snapshot.files[name], metadata) for name in beside},
    )


def _weight_names(
    snapshot: RepoSnapshot, metadata: MetadataCache, contents: Contents, index: str, single: str
) -> list[str]:
    """The files that hold the weights, by the same rule as for a local folder."""
    names: list[str] = []
    if index in snapshot.files:
        path = snapshot.folder / index
        names = sorted(set(parse_index(path.read_bytes(), str(path)).values()))
    elif single in snapshot.files:
        names = [single]
    elif snapshot.online or _other_weights(snapshot):
        where, others = f"{snapshot.repo}@{snapshot.commit}", sorted(snapshot.files)
        raise no_weights(where, contents, _other_weights(snapshot) or others)
    absent = [name for name in names if name not in snapshot.files]
    if not snapshot.online:
        absent += [
            name
            for name in names
            if (file := snapshot.files.get(name)) and not file.content
            if metadata.header(file.etag) is None
        ]
        absent += [] if names else [contents.expected]
        absent += [] if contents.config in snapshot.files else [contents.config]
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


def _header(file: HubFile, metadata: MetadataCache, online: bool) -> dict[str, TensorInfo]:
    if online:
        file.link()  # same content as at another commit
    path = file.pointer
    if not (file.whole and path.is_file()) or metadata.verdict(path, file.etag) is False:
        if not online and metadata.header(file.etag) is None:
            raise offline_error(file.repo, file.commit, [describe_missing(file)])
        return remote_header(file, metadata)
    try:
        return read_weight_header(path, file.name)[0]
    except InputError:
        if not online:
            raise
        return remote_header(file, metadata)  # which tells whether the cached file is to blame


def _source_file(file: HubFile, metadata: MetadataCache) -> SourceFile:
    path = file.content
    present = path is not None and file.whole and metadata.verdict(path, file.etag) is not False
    return SourceFile(file.name, file.size, {"etag": file.etag}, present)


def _other_weights(snapshot: RepoSnapshot) -> list[str]:
    return sorted(n for n in snapshot.files if n.endswith((".bin", ".pt", ".pth", ".gguf", ".h5")))
