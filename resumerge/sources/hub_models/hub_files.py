"""Files of a Hub model: there, whole and intact, or brought into the standard cache; no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from resumerge.errors import InputError, refuse
from resumerge.hub.cache import HubFile, snapshot_folder
from resumerge.hub.callbacks import Watch
from resumerge.hub.content_hash import is_intact
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.sources.companions import folder_companions
from resumerge.sources.types import Source

DAMAGED = "source_damaged"
"""Event: a cached file has not the content that its name says."""


def hub_file(source: Source, name: str) -> HubFile:
    """A file of a Hub model: one that tensors are read from, or a companion."""
    source, name = source.part_of(name)
    file = source.files[name] if name in source.files else source.companions[name]
    return HubFile(
        source.ref.name, source.revision or "", name, file.size, str(file.identity["etag"])
    )


def bring(
    file: HubFile,
    records: MetadataCache,
    watch: Watch | None = None,
    *,
    offline: bool = False,
    room: Callable[[int], None] | None = None,
) -> None:
    """See to it that a file is in the cache with the content that its name says.

    What is there is read once, and then trusted until it changes; what is damaged or missing is
    downloaded.

    Args:
        room: called with the bytes that a download still needs, before it begins.

    Raises:
        InputError: the Hub denies the file; offline, it is missing or damaged.
        Resumable: the network failed for good, or the disk is full. What came is kept.
    """
    watch = watch or Watch()
    while not stands(file, records, watch):
        if offline or env_offline():
            raise missing_offline(file.repo, file.commit, [lacking(file)])
        if room is not None:
            room(file.size - partial_bytes(file))
        from resumerge.hub.download import download  # with what sockets take

        download(file, records, watch, unfit=file.inode)
    file.link()


def stands(file: HubFile, records: MetadataCache, watch: Watch) -> bool:
    """Whether the cache has a file whole and intact; read now if that is not known."""
    path = file.content
    if path is None:
        return False
    verdict = records.verdict(path, file.etag)
    if verdict is None:
        verdict = is_intact(path, file.etag, file.size, watch.check)
        records.settle(path, file.etag, verdict)
        if not verdict:
            latest = max((damage.id for damage in records.damages(path, since="")), default=None)
            watch.event(DAMAGED, model=file.repo, file=file.name, damage=latest)
    return verdict


def fetch(
    source: Source,
    names: Iterable[str],
    records: MetadataCache | None = None,
    watch: Watch | None = None,
    *,
    offline: bool = False,
) -> None:
    """Bring files of a source into the cache at its commit, one after the other.

    Args:
        names: of `source.files` or `source.companions`.

    Raises:
        InputError: the Hub denies a file; offline, with all files that are missing or damaged.
        Resumable: the network failed for good, or the disk is full. What came is kept.
    """
    if source.kind != "hub":
        return
    records, watch = records or MetadataCache(), watch or Watch()
    files = [hub_file(source, name) for name in sorted(set(names))]
    if offline or env_offline():
        absent = [lacking(file) for file in files if not stands(file, records, watch)]
        if absent:
            raise missing_offline(source.ref.name, source.revision or "", absent)
    for file in files:
        bring(file, records, watch, offline=offline)


def list_companions(source: Source) -> list[str]:
    """Names of the files beside the weights: see `companion_files`. Offline, those in the cache."""
    return folder_companions(source.folder) if source.kind != "hub" else sorted(source.companions)


def partial_bytes(file: HubFile) -> int:
    """How much of a file a download has left."""
    return min(file.size, file.partial.stat().st_size) if file.partial.exists() else 0


def lacking(file: HubFile) -> str:
    """A file's name, and what is wrong with it, for a list of what is missing."""
    path = file.content
    if path is None:
        return file.name
    size = path.stat().st_size
    return file.name + (
        " (damaged)" if size == file.size else f" (damaged: {size} of {file.size} bytes)"
    )


def env_offline() -> bool:
    """Whether HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def missing_offline(repo: str, commit: str, names: list[str]) -> InputError:
    """What to say when the cache lacks files and the network is not allowed."""
    return refuse(
        "The network is off, and the cache lacks files of this model",
        where=f"{repo}@{commit}",
        expected=f"in {snapshot_folder(repo, commit)}",
        found=f"missing: {', '.join(names)}",
        fix="run once without --offline (and with HF_HUB_OFFLINE unset)",
    )
