"""Files of a Hub model, brought into the standard cache at the source's commit, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from resumerge.errors import InputError, Resumable, refuse
from resumerge.sources.companions import companion_files, folder_companions
from resumerge.sources.hub_network import DOWNLOAD_WAITS, hub_call
from resumerge.sources.hub_progress import Report, progress_arguments
from resumerge.sources.hub_snapshot import cached_snapshot, hub_snapshot
from resumerge.sources.model import Source


def fetch(
    source: Source, names: Iterable[str], report: Report | None = None, *, offline: bool = False
) -> None:
    """Download weight files of a source into the cache, at its commit; those there are left alone.

    Args:
        names: files of `source.files`.
        report: called with a file's name and its bytes so far, at the latest when it is whole.
        offline: do not download; a file that is missing is an error.

    Raises:
        InputError: the Hub denies a file; offline, a file is missing.
        Resumable: the network failed for good, or the disk is full. Whole files are kept.
    """
    if source.kind != "hub":
        return
    absent = [n for n in sorted(set(names)) if not whole(source.folder / n, source.files[n].size)]
    if absent and (offline or env_offline()):
        raise missing_offline(source.ref.name, source.revision or "", source.folder, absent)
    for name in absent:
        _download_whole(source, name, report)
        if report is not None:
            report(name, source.files[name].size)


def list_companions(source: Source, *, offline: bool = False) -> list[str]:
    """Names of the files beside the weights: see `companion_files`.

    Offline these are the ones in the cache.

    Raises:
        InputError, Resumable: as `open_hub`.
    """
    if source.kind != "hub":
        return folder_companions(source.folder)
    listed = cached_snapshot if offline or env_offline() else hub_snapshot
    snapshot = listed(source.ref.name, source.revision)
    return companion_files({name: file.size for name, file in snapshot.files.items()})


def fetch_companions(source: Source, names: Iterable[str], *, offline: bool = False) -> None:
    """Bring small files of `list_companions` into the source's folder, at its commit.

    Raises:
        InputError, Resumable: as `fetch`.
    """
    absent = [name for name in sorted(set(names)) if not (source.folder / name).is_file()]
    if not absent or source.kind != "hub":
        return
    if offline or env_offline():
        raise missing_offline(source.ref.name, source.revision or "", source.folder, absent)
    for name in absent:
        download(source.ref.name, source.revision or "", name)


def download(
    repo: str, commit: str, name: str, *, force: bool = False, report: Report | None = None
) -> None:
    """Bring one file into the cache, where it is not downloaded again unless `force` is given."""
    from huggingface_hub import hf_hub_download

    hub_call(
        lambda: hf_hub_download(
            repo,
            name,
            revision=commit,
            force_download=force,
            library_name="resumerge",
            **progress_arguments(name, report),
        ),
        repo=repo,
        revision=commit,
        waits=DOWNLOAD_WAITS,
    )


def _download_whole(source: Source, name: str, report: Report | None) -> None:
    """Download a file, from scratch if the cache holds a damaged one under its name."""
    path, size = source.folder / name, source.files[name].size
    for force in (False, True):
        download(source.ref.name, source.revision or "", name, force=force, report=report)
        if whole(path, size):
            return
    raise Resumable(
        "network", f"{name} of {source.ref.name} does not arrive at its full size of {size} bytes"
    )


def whole(path: Path, size: int) -> bool:
    """Whether a file is there with all of its bytes."""
    return path.is_file() and path.stat().st_size == size


def env_offline() -> bool:
    """Whether HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def missing_offline(repo: str, commit: str, folder: Path, names: list[str]) -> InputError:
    """What to say when the cache lacks files and the network is not allowed."""
    return refuse(
        "The network is off, and the cache lacks files of this model",
        where=f"{repo}@{commit}",
        expected=f"in {folder}",
        found=f"missing: {', '.join(names)}",
        fix="run once without --offline (and with HF_HUB_OFFLINE unset)",
    )
