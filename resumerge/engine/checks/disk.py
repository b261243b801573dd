"""Check that disks have space for the output and the downloads."""

from __future__ import annotations

from pathlib import Path

from resumerge.errors import Problem
from resumerge.host.machine import FREE_BESIDE_DOWNLOADS, existing_folder, free_bytes
from resumerge.planning.estimates.estimate import Estimate
from resumerge.planning.plan import Plan
from resumerge.remote.file import RemoteFile
from resumerge.sizes import show_size
from resumerge.sources.remote.files import (
    describe_missing,
    partial_bytes,
    remote_file,
)


def check_disk(
    out: Path, needed: int, *, then_delete: bool = False, cluster: bool = False
) -> list[Problem]:
    """Return a problem if the output's disk has fewer than `needed` bytes free.

    Args:
        out: the output's folder.
        needed: the bytes that must be free on the disk of `out`.
        then_delete: whether `needed` is for one shard, because shards are deleted here once the
            mirror has them.
        cluster: whether a cluster computes the output; it needs every shard in the output.
    """
    available_bytes = free_bytes(out)
    if available_bytes >= needed:
        return []
    shard_size_advice = "choose smaller shards with --shard-size"
    mirror_advice = (
        "move each shard to a mirror when it is done, with --mirror and --mirror-then-delete"
    )
    return [
        Problem(
            "The disk is too small for the largest shard"
            if then_delete
            else "The disk is too small for the output",
            where=str(out),
            expected=f"{show_size(needed)} free",
            found=f"{show_size(available_bytes)} free",
            fix=f"free {show_size(needed - available_bytes)}, or name an output on another disk"
            + ("" if cluster else f", or {shard_size_advice if then_delete else mirror_advice}"),
        )
    ]


def check_downloads(
    plan: Plan, estimate: Estimate, out: Path, output: int, *, offline: bool, evict: bool
) -> list[Problem]:
    """Return the problems of downloads: missing files when offline, or too little disk space.

    Args:
        plan: the plan whose sources contain the missing files.
        estimate: the estimate of `plan`, which lists the files that are `missing` here.
        out: the output's folder.
        output: bytes that the output needs on its disk, which may also be a cache's disk.
        offline: whether the network must not be used.
        evict: whether downloads are deleted when they are no longer needed. Disk space for them is
            not checked then.
    """
    source_files = [(plan.sources[number], name) for number, name in sorted(estimate.missing)]
    remote_files = [remote_file(source, name) for source, name in source_files]
    unreachable_files = [file for file in remote_files if offline or file.is_offline]
    if unreachable_files:
        files_by_version: dict[str, list[RemoteFile]] = {}
        for file in unreachable_files:
            files_by_version.setdefault(file.version, []).append(file)
        return [
            missing_files[0].offline_error(list(map(describe_missing, missing_files))).problems[0]
            for missing_files in files_by_version.values()
        ]
    files_by_disk: dict[int, list[RemoteFile]] = {}
    for file, (source, name) in zip(remote_files, source_files):
        if source.is_streamed(name):
            continue
        files_by_disk.setdefault(_device(file.cache), []).append(file)
    if evict:
        return []
    problems = []
    for device, downloads in files_by_disk.items():
        needed_bytes = sum(file.size - partial_bytes(file) for file in downloads)
        if needed_bytes:  # `output` includes space for companions and ledger
            needed_bytes += output if device == _device(out) else FREE_BESIDE_DOWNLOADS
        problems += _too_small_for_downloads(
            downloads[0].cache.absolute(), needed_bytes, max(file.size for file in downloads)
        )
    return problems


def _device(folder: Path) -> int:
    """Return the device number of a folder's disk; the folder need not exist yet."""
    existing = existing_folder(folder.absolute())
    return existing.stat().st_dev if existing else -1


def disk_needed(plan: Plan, estimate: Estimate, out: Path, output: int, *, evict: bool) -> int:
    """Return the bytes that the output and the downloads need together on the output's disk.

    Args:
        plan: the plan whose sources contain the missing files.
        estimate: the estimate of `plan`, which lists the files that are `missing` here.
        out: the output's folder.
        output: the bytes that the output itself needs there.
        evict: whether downloads are deleted when they are no longer needed; they do not count then.
    """
    missing_files = [(plan.sources[number], name) for number, name in sorted(estimate.missing)]
    downloads = [remote_file(*key) for key in missing_files if not key[0].is_streamed(key[1])]
    downloads_on_disk = [file for file in downloads if _device(file.cache) == _device(out)]
    return output + (
        0 if evict else sum(file.size - partial_bytes(file) for file in downloads_on_disk)
    )


def _too_small_for_downloads(cache: Path, needed: int, largest: int) -> list[Problem]:
    """Return a problem if the cache's disk has fewer than `needed` bytes free.

    Args:
        cache: the folder of the downloads.
        needed: the free bytes that are needed.
        largest: the bytes of the largest download, which even --evict needs.
    """
    available_bytes = free_bytes(cache)
    if available_bytes >= needed:
        return []
    return [
        Problem(
            "The disk is too small for the downloads",
            where=str(existing_folder(cache)),
            expected=f"{show_size(needed)} free",
            found=f"{show_size(available_bytes)} free",
            fix="free some space, move the cache by setting HF_HOME, or add "
            + (
                "--evict, which deletes downloads of this run when they are no longer needed"
                if largest < available_bytes
                else "--stream, which reads models by ranges and stores none of them"
            ),
        )
    ]
