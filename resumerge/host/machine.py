"""The machine's name, boot id, cores, and free disk space; how much of a disk stays free."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from resumerge.host.system import kernel_file, offered

FREE_FOR_COMPANIONS = 30_000_000
"""Bytes that a merge needs on the output's disk beside its shards: for companions and the ledger.

An allowance, not a count. The ledger has up to 16 bytes for each block of the output and of each
model that is merged (1.5 MB for two models of 8 billion parameters), and its snapshot as many. The
rest is for the companions, of which the tokenizer is the largest. Where all this takes more, and
the disk is full, a write fails, and the run can be resumed.
"""

FREE_BESIDE_SHARDS = FREE_FOR_COMPANIONS // 2
"""Bytes of the output's disk that stay free when a shard gets its space during a merge.

Half of what has to be free before a new merge: the ledger, which grows meanwhile, may take the
other half, and the shard for which the disk had space then still gets it.
"""

FREE_BESIDE_DOWNLOADS = 16_000_000
"""Bytes of the cache's disk that downloads leave free.

About as many as shards leave, and for the same: the ledger, the companions and the metadata cache,
where they are on this disk. Space for shards comes on top (`SpaceReservation.reserved_bytes`).
"""


def hostname() -> str:
    """Return the machine's name."""
    return socket.gethostname() or "unknown"


def boot_id() -> str:
    """Return an id that changes with every boot; empty where the system does not say."""
    try:
        return kernel_file("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = offered(os, "sched_getaffinity")
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that a path, which need not exist yet, would be on."""
    folder = existing_folder(path)
    return shutil.disk_usage(folder).free if folder else 0


def existing_folder(path: Path) -> Path | None:
    """Return the path, or the nearest folder above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
