"""A model on the Hub: pinned to a commit, planned from its headers, fetched only as needed.

Everything goes through the standard cache of huggingface_hub, so other programs share it.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from resumerge.errors import InputError, Resumable, refuse
from resumerge.recipe.model import ModelRef
from resumerge.sources.headers import read_header
from resumerge.sources.hub_files import download, env_offline, missing_offline, whole
from resumerge.sources.hub_headers import remote_header
from resumerge.sources.hub_snapshot import COMMIT, Snapshot, cached_snapshot, hub_snapshot
from resumerge.sources.index import INDEX_FILE, SINGLE_FILE, parse_index
from resumerge.sources.local import check_index, read_config
from resumerge.sources.model import Source, SourceFile, TensorInfo

HEADER_THREADS = 8
"""Headers read at once: a model of 200 files is 200 round trips."""


def open_hub(ref: ModelRef, *, revision: str | None = None, offline: bool = False) -> Source:
    """Pin a Hub model and read the headers of its weight files.

    config.json and the index come through the cache. Headers are read by range requests, or from
    the cached file where there is one. No weight file is downloaded.

    Args:
        ref: the model as the recipe names it.
        revision: the commit that an earlier attempt was pinned to; instead of the recipe's branch.
        offline: ask the cache only, as with HF_HUB_OFFLINE.

    Returns:
        The source, at a commit. A file is `present` when the cache holds it whole.

    Raises:
        InputError: no such model, no access, no safetensors in it, damaged headers; offline, with
            the names of the missing files.
        Resumable: the network failed.

    Example:
        >>> source = open_hub(ModelRef("org/name", "org/name"))  # doctest: +SKIP
        >>> fetch(source, [name for name, file in source.files.items() if not file.present])
    """
    wanted = revision or ref.revision
    if offline or env_offline():
        return _open(ref, cached_snapshot(ref.name, wanted))
    try:
        return _open(ref, hub_snapshot(ref.name, wanted))
    except Resumable:
        # A commit never changes, so the cache may answer for it; for a branch it may not.
        if wanted and COMMIT.fullmatch(wanted):
            with suppress(InputError):
                return _open(ref, cached_snapshot(ref.name, wanted))
        raise


def _open(ref: ModelRef, snapshot: Snapshot) -> Source:
    if snapshot.online:
        for name in snapshot.files.keys() & {"config.json", INDEX_FILE}:
            _ensure(snapshot, name)
    names = _weight_names(snapshot)
    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        headers = list(pool.map(lambda name: _header(snapshot, name), names))
    tensors: dict[str, TensorInfo] = {}
    for found in headers:
        twice = tensors.keys() & found.keys()
        if twice:
            raise refuse(
                "A tensor stands in two files of one model", where=ref.text, found=min(twice)
            )
        tensors.update(found)
    check_index(snapshot.folder, tensors)
    return Source(
        ref,
        "hub",
        snapshot.folder,
        snapshot.commit,
        read_config(snapshot.folder),
        tensors,
        {name: _source_file(snapshot, name) for name in names},
    )


def _weight_names(snapshot: Snapshot) -> list[str]:
    """The safetensors files that make up the model, by the same rule as for a local folder."""
    names: list[str] = []
    if INDEX_FILE in snapshot.files:
        path = snapshot.folder / INDEX_FILE
        names = sorted(set(parse_index(path.read_bytes(), str(path)).values()))
    elif SINGLE_FILE in snapshot.files:
        names = [SINGLE_FILE]
    elif snapshot.online or _other_weights(snapshot):
        raise _no_safetensors(snapshot)
    absent = [name for name in names if name not in snapshot.files]
    if not snapshot.online:
        absent += [] if names else [f"{SINGLE_FILE}, or {INDEX_FILE} and its files"]
        absent += [] if "config.json" in snapshot.files else ["config.json"]
        if absent:
            raise missing_offline(snapshot.repo, snapshot.commit, snapshot.folder, absent)
    elif absent:
        raise refuse(
            "The index names files that the repo does not have",
            where=f"{snapshot.repo}@{snapshot.commit}",
            expected=f"{len(names)} files",
            found=f"missing: {', '.join(absent)}",
            fix="name another revision, or ask the repo's owner to upload them",
        )
    return names


def _ensure(snapshot: Snapshot, name: str) -> None:
    if not snapshot.whole(name):
        download(snapshot.repo, snapshot.commit, name, force=(snapshot.folder / name).is_file())


def _header(snapshot: Snapshot, name: str) -> dict[str, TensorInfo]:
    if (
        snapshot.online
        and not snapshot.whole(name)
        and whole(snapshot.blob(name), snapshot.files[name].size)
    ):
        _ensure(snapshot, name)  # same content as at another commit: only a link is made
    if not snapshot.whole(name):
        return remote_header(snapshot, name)
    return read_header(snapshot.folder / name, name)[0]


def _source_file(snapshot: Snapshot, name: str) -> SourceFile:
    file = snapshot.files[name]
    etag = file.etag or _sha256(snapshot.folder / name)
    return SourceFile(name, file.size, {"etag": etag}, snapshot.whole(name))


def _sha256(path: Path) -> str:
    """The etag of an LFS file, for a cache on a disk without links, where no blob is named so."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _other_weights(snapshot: Snapshot) -> list[str]:
    return sorted(n for n in snapshot.files if n.endswith((".bin", ".pt", ".pth", ".gguf", ".h5")))


def _no_safetensors(snapshot: Snapshot) -> InputError:
    others = _other_weights(snapshot) or sorted(snapshot.files)
    return refuse(
        "The repo holds no safetensors model, and only safetensors can be read so far",
        where=f"{snapshot.repo}@{snapshot.commit}",
        expected=f"{SINGLE_FILE}, or {INDEX_FILE} and its files",
        found=", ".join(others[:8]) or "an empty repo",
        fix="look for a revision with safetensors (often a pull request: "
        f"{snapshot.repo}@refs/pr/1), or load the model with transformers and "
        "save_pretrained it into a folder",
    )
