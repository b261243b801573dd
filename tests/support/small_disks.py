"""Filesystems of a few megabytes in memory, and functions that fill them."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, nbytes: int) -> Iterator[Path]:
    """Mount a filesystem of that size in a folder; skip the test if nothing may be mounted."""
    with _mounted(folder, ["-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs"]):
        yield folder


@contextmanager
def also_at(folder: Path, place: Path) -> Iterator[Path]:
    """Mount a folder at another place, too; skip the test if that cannot be done."""
    with _mounted(place, ["--bind", str(folder)]):
        yield place


@contextmanager
def _mounted(folder: Path, what: list[str]) -> Iterator[None]:
    done = subprocess.run(["mount", *what, str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"a filesystem cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, nbytes: int) -> None:
    """Change the size of the filesystem that is mounted in a folder."""
    subprocess.run(["mount", "-o", f"remount,size={nbytes}", str(folder)], check=True)


def fill(path: Path) -> None:
    """Fill a disk to its last byte."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 20, 4096, 1):
        try:
            while True:
                os.write(fd, bytes(size))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    os.close(fd)
