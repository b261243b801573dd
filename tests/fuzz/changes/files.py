"""What may lie in the place of a file: other bytes, a sparse file, a pipe, a folder, nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

SPARSE = 600_000_000
"""Bytes: more than a process may take, and as little as shows it."""


def put(path: Path, data: bytes) -> None:
    """Other bytes, in a new file."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def put_something(draw: Random, path: Path, data: Callable[[], bytes]) -> None:
    """Usually other bytes, at times something that is no file, or a huge one."""
    what = draw.randrange(100)
    if what >= 8:
        return put(path, data())
    before = path.read_bytes() if path.is_file() else b""
    path.unlink(missing_ok=True)
    match what:
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(path.name)
        case 3:
            path.symlink_to(draw.choice(("nothing", "/dev/zero", "/dev/full", "/proc/self/mem")))
        case 4 | 5:
            path.write_bytes(before if what == 4 else b"")
            os.truncate(path, SPARSE)
        case 6:
            path.write_bytes(b"")
    return None
