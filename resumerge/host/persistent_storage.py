"""Folders that outlive this machine: a mounted Google Drive, what Kaggle saves, network disks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DRIVE = "content/drive"
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "fuse.sshfs")
_BUCKETS = ("fuse.gcsfuse", "gcsfuse", "fuse.s3fs", "fuse.rclone", "fuse.blobfuse2")


@dataclass(frozen=True)
class Durable:
    """A folder that is there when the machine is not.

    Args:
        folder: the highest that one may write to.
        kind: ``drive``, ``kaggle``, ``network`` or ``bucket``.
        condition: what it takes for it to be kept; empty where nothing.
    """

    folder: Path
    kind: str
    condition: str = ""


def find_durable(root: Path = Path("/")) -> list[Durable]:
    """Look for them, best first.

    Args:
        root: where the file system begins; the folders that are returned begin at ``/``.
    """
    return [*_drive(root), *_kaggle(root), *_mounted(root)]


def _drive(root: Path) -> Iterator[Durable]:
    """Google Drive, where it is mounted: an unmounted one is a folder on the VM's own disk."""
    mounts = {place for place, _ in _mounts(root)}
    place = Path("/") / DRIVE
    if str(place) in mounts and (root / DRIVE / "MyDrive").is_dir():
        yield Durable(place / "MyDrive", "drive")


def _kaggle(root: Path) -> Iterator[Durable]:
    if (root / "kaggle/working").is_dir():
        yield Durable(Path("/kaggle/working"), "kaggle", "kept only by Save Version, up to 20 GB")


def _mounted(root: Path) -> Iterator[Durable]:
    for place, kind in _mounts(root):
        if kind in _NETWORK:
            yield Durable(Path(place), "network")
        elif kind in _BUCKETS:
            yield Durable(Path(place), "bucket")


def _mounts(root: Path) -> list[tuple[str, str]]:
    """(mount point, kind of file system) of everything that is mounted."""
    try:
        lines = (root / "proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return [(_unescaped(f[1]), f[2]) for f in fields if len(f) >= 3]


def _unescaped(place: str) -> str:
    """As proc(5) says: blanks and backslashes stand there as octal numbers."""
    for number, letter in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        place = place.replace("\\" + number, letter)
    return place
