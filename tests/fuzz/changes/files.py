"""Replacements of a file: other bytes, a sparse file, a pipe, a folder, a link, nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

SPARSE = 600_000_000
"""The bytes of a sparse file: slightly more than the memory that a case may use."""


def put(path: Path, data: bytes) -> None:
    """Write bytes to a new file in the place of one."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def put_something(draw: Random, path: Path, data: Callable[[], bytes]) -> None:
    """Replace a file, usually by other bytes, at times by a huge file or by what is no file."""
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
