"""The speed of reading, writing and computing on this machine, measured by a short probe.

The probe takes 0.05 s and leaves no file behind. It is only a sample: the speed differs on another
disk, with files that are not cached, or while other programs run.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from resumerge.host.system import offered, sync

READ_BYTES, WRITE_BYTES = 32 << 20, 16 << 20
_ELEMENTS, _ROUNDS = 1 << 18, 10


@dataclass(frozen=True)
class Speed:
    """The result of the probe.

    Args:
        read: the bytes read per second; None if not measured.
        write: the bytes written and synced to the disk per second; None if not measured.
        compute: the float32 elements that one core multiplies and adds per second; None if not
            measured.
    """

    read: float | None
    write: float | None
    compute: float | None


def measure_speed(
    source: Path | None, folder: Path | None = None, *, computes: bool = True
) -> Speed:
    """Measure the speed of reading, writing and computing.

    Args:
        source: a large file to read a part of; None to skip reading.
        folder: a folder on the disk of the output; None to skip writing.
        computes: whether to measure computing.
    """
    return Speed(
        _read(source) if source else None,
        _write(folder) if folder else None,
        _compute() if computes else None,
    )


def _read(path: Path) -> float | None:
    """Return the bytes per second of reading from the middle of a file; None after an error.

    Calls and sizes of reads are the same as in a merge.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(fd).st_size
        wanted_bytes = min(READ_BYTES, size)
        buffer = bytearray(min(1 << 19, wanted_bytes or 1))
        offset, read_bytes, start_time = (size - wanted_bytes) // 2, 0, time.perf_counter()
        while read_bytes < wanted_bytes:
            count = os.preadv(fd, [buffer], offset + read_bytes)
            if count == 0:
                break
            read_bytes += count
        return read_bytes / (time.perf_counter() - start_time) if read_bytes else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _write(folder: Path) -> float | None:
    """Return the bytes per second of writing to a file without a name; None after an error.

    The file is invisible to other programs, and disappears when it is closed.
    """
    nameless_flag = offered(os, "O_TMPFILE")
    if nameless_flag is None:
        return None
    try:
        fd = os.open(folder, nameless_flag | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        data = bytes(1 << 20)
        start_time = time.perf_counter()
        for _ in range(WRITE_BYTES // len(data)):
            os.write(fd, data)
        sync(fd, data_only=True)
        return WRITE_BYTES / (time.perf_counter() - start_time)
    except OSError:
        return None
    finally:
        os.close(fd)


def _compute() -> float:
    products, ones = np.ones(_ELEMENTS, np.float32), np.ones(_ELEMENTS, np.float32)
    start_time = time.thread_time()
    for _ in range(_ROUNDS):
        np.multiply(products, 0.5, out=products)
        np.add(products, ones, out=products)
    return _ELEMENTS * _ROUNDS / max(time.thread_time() - start_time, 1e-6)
