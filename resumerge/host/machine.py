"""The machine's name, boot id, cores and free disk space, and the disk space to keep free."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from resumerge.host.system import kernel_file, offered

FREE_FOR_COMPANIONS = 30_000_000
"""The bytes that a merge needs on the output's disk for companions and the ledger.

This is an allowance, not a count. The ledger has up to 16 bytes for each block of the output and of
each merged model (1.5 MB for two models of 8 billion parameters), and its snapshot has the same
size. The rest is for the companions; the largest of them is the tokenizer. If they need more, and
the disk is full, a write fails, and the run can be resumed.
"""

FREE_BESIDE_SHARDS = FREE_FOR_COMPANIONS // 2
"""The bytes of the output's disk that stay free when space for a shard is reserved during a merge.

A new merge requires twice as many bytes to be free. The ledger may use the other half while it
grows, so that a shard that had space on the disk before the merge still has space later.
"""

FREE_BESIDE_DOWNLOADS = 16_000_000
"""The bytes of the cache's disk that downloads leave free.

They are for the ledger, the companions and the metadata cache, which may be on the same disk. The
space for shards is added to them (`SpaceReservation.reserved_bytes`).
"""


def hostname() -> str:
    """Return the machine's name; ``unknown`` if it has none."""
    return socket.gethostname() or "unknown"


def boot_id() -> str:
    """Return an id that changes with every boot; empty if the system has none."""
    try:
        return kernel_file("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = offered(os, "sched_getaffinity")
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def free_bytes(path: Path) -> int:
    """Return the free bytes of a path's disk. The path need not exist yet."""
    folder = existing_folder(path)
    return shutil.disk_usage(folder).free if folder else 0


def existing_folder(path: Path) -> Path | None:
    """Return the path if it is a folder, else the nearest folder above it; None without one."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
