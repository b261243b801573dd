"""The features of this operating system beyond POSIX. No other module looks them up.

Code that uses a feature beyond POSIX requests it here by name, and has an alternative if the result
is None. docs/architecture.md lists the alternatives, and the promises that they weaken.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "RESUMERGE_POSIX_ONLY"
"""The environment variable that disables all features beyond POSIX, unless it is empty or 0."""

POSIX_ONLY = os.environ.get(VARIABLE, "") not in ("", "0")
LINUX = sys.platform == "linux" and not POSIX_ONLY
MACOS = sys.platform == "darwin" and not POSIX_ONLY

NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""The error numbers of operations that a filesystem does not support.

EOPNOTSUPP and ENOTSUP are the same number on Linux, and different numbers on macOS.
"""

_KERNEL = Path("/") if LINUX else Path(os.devnull)  # no path exists below a device


def kernel_file(path: str) -> Path:
    """Return the path of a file or folder in Linux's /proc or /sys.

    On other systems, return a path that does not exist, because their /proc has another format.
    """
    return _KERNEL / path.lstrip("/")


def offered(module: ModuleType, name: str) -> Any:
    """Return an attribute that a Python module has only on some systems; None if it is missing."""
    return None if POSIX_ONLY else getattr(module, name, None)


def libc(name: str) -> Any:
    """Return a function of the C library that is not in POSIX; None if this system lacks it.

    `ctypes.get_errno` returns the `errno` of its calls.
    """
    return None if POSIX_ONLY else getattr(ctypes.CDLL(None, use_errno=True), name, None)


def sync(fd: int, *, data_only: bool = False) -> None:
    """Make the bytes that were written to an open file durable.

    On macOS, fsync(2) leaves the data in the cache of the disk. Therefore F_FULLFSYNC of fcntl(2)
    is used there, if the filesystem supports it.

    Args:
        fd: the file's descriptor.
        data_only: whether to sync only the content and not the file's times (fdatasync(2)), if the
            system supports it.

    Raises:
        OSError: the sync failed.
    """
    full_sync_command = offered(fcntl, "F_FULLFSYNC")
    if full_sync_command is not None:
        try:
            fcntl.fcntl(fd, full_sync_command)
            return
        except OSError as error:
            if error.errno not in {*NOT_SUPPORTED, errno.ENOTTY}:
                raise
    fdatasync = offered(os, "fdatasync") if data_only else None
    (fdatasync or os.fsync)(fd)
