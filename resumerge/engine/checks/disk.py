"""Whether the disks have space for the output and for what is to be downloaded."""

from __future__ import annotations

from pathlib import Path

from resumerge.errors import Problem
from resumerge.host.disk import existing_folder, free_bytes
from resumerge.hub.cache import cache_folder
from resumerge.hub.client import is_offline
from resumerge.planning.estimates.estimate import COMPANION_BYTES, disk_needed
from resumerge.planning.plan import Plan
from resumerge.sizes import show_size
from resumerge.sources.hub.files import (
    describe_missing,
    hub_file,
    offline_error,
    partial_bytes,
)


def space_needed(plan: Plan, *, then_delete: bool) -> int:
    """Bytes of disk space that the output needs.

    Args:
        then_delete: shards are deleted once the mirror has them, so that only one must fit.
    """
    if not then_delete:
        return disk_needed(plan)
    return max((shard.nbytes for shard in plan.shards), default=0) + COMPANION_BYTES


def check_disk(out: Path, needed: int, *, then_delete: bool = False) -> list[Problem]:
    """The disk must have `needed` bytes free.

    Args:
        then_delete: they are for one shard, since shards are deleted once the mirror has them.
    """
    free = free_bytes(out)
    if free >= needed:
        return []
    smaller = "choose smaller shards with --shard-size"
    elsewhere = (
        "move each shard to a mirror when it is done, with --mirror and --mirror-then-delete"
    )
    return [
        Problem(
            "The disk is too small for the largest shard"
            if then_delete
            else "The disk is too small for the output",
            where=str(out),
            expected=f"{show_size(needed)} free",
            found=f"{show_size(free)} free",
            fix=f"free {show_size(needed - free)}, or name an output on another disk, or "
            + (smaller if then_delete else elsewhere),
        )
    ]


def check_downloads(
    plan: Plan, out: Path, output: int, *, offline: bool, evict: bool
) -> list[Problem]:
    """Offline every file must be cached; otherwise the disk must have space for the downloads.

    Args:
        output: bytes that the output needs, which may be on the same disk.
    """
    absent = {
        number: sorted(n for n in plan.bytes_needed(number) if not source.files[n].present)
        for number, source in enumerate(plan.sources)
    }
    files = [hub_file(plan.sources[k], name) for k, names in absent.items() for name in names]
    if files and (offline or is_offline()):
        return [
            offline_error(
                repo,
                commit,
                [describe_missing(f) for f in files if (f.repo, f.commit) == (repo, commit)],
            ).problems[0]
            for repo, commit in dict.fromkeys((file.repo, file.commit) for file in files)
        ]
    needed = sum(file.size - partial_bytes(file) for file in files)
    if evict or not needed:
        return []
    cache, there = existing_folder(cache_folder().absolute()), existing_folder(out.absolute())
    if cache and there and cache.stat().st_dev == there.stat().st_dev:
        needed += output
    free = free_bytes(cache_folder().absolute())
    if free >= needed:
        return []
    return [
        Problem(
            "The disk is too small for the downloads",
            where=str(cache),
            expected=f"{show_size(needed)} free",
            found=f"{show_size(free)} free",
            fix="free some space, move the cache by setting HF_HOME, or add --evict, which deletes "
            "downloads of this run when they are no longer needed",
        )
    ]
