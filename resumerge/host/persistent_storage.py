"""Folders that outlive this machine: a mounted Google Drive, Kaggle's output, network disks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

DRIVE = "content/drive"
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "fuse.sshfs")
_BUCKETS = ("fuse.gcsfuse", "gcsfuse", "fuse.s3fs", "fuse.rclone", "fuse.blobfuse2")


@dataclass(frozen=True)
class PersistentFolder:
    """A folder that outlives the machine.

    Args:
        folder: the topmost folder that the user may write to.
        kind: ``drive``, ``kaggle``, ``network`` or ``bucket``.
        condition: the condition under which the folder is kept; empty if it is always kept.
    """

    folder: Path
    kind: str
    condition: str = ""


def find_persistent(root: Path = Path("/")) -> list[PersistentFolder]:
    """Find the folders that outlive this machine, the best first.

    Args:
        root: the root of the file system to search. The returned paths begin with ``/`` anyway.
    """
    mounts: list[tuple[str, str]] = []
    with suppress(OSError):  # without /proc
        mounts = [(mount.mountpoint, mount.fstype) for mount in psutil.disk_partitions(all=True)]
    return [*_drive(root, mounts), *_kaggle(root), *_network(mounts)]


def _drive(root: Path, mounts: list[tuple[str, str]]) -> Iterator[PersistentFolder]:
    """Yield Google Drive if it is mounted. Unmounted, its folder is on the VM's own disk."""
    folder = Path("/") / DRIVE
    is_mounted = any(path == str(folder) for path, _ in mounts)
    if is_mounted and (root / DRIVE / "MyDrive").is_dir():
        yield PersistentFolder(folder / "MyDrive", "drive")


def _kaggle(root: Path) -> Iterator[PersistentFolder]:
    if (root / "kaggle/working").is_dir():
        condition = "kept only with Save Version, up to 20 GB"
        yield PersistentFolder(Path("/kaggle/working"), "kaggle", condition)


def _network(mounts: list[tuple[str, str]]) -> Iterator[PersistentFolder]:
    for path, filesystem in mounts:
        if filesystem in _NETWORK:
            yield PersistentFolder(Path(path), "network")
        elif filesystem in _BUCKETS:
            yield PersistentFolder(Path(path), "bucket")
