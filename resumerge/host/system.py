"""The features of this operating system beyond POSIX, which are looked up only here.

Code that wants more than POSIX asks here for a feature by its name, and does without it if the
answer is None. docs/architecture.md says how, and which promise is then weaker.
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
"""The environment variable that turns off everything beyond POSIX, unless it is empty or 0."""

POSIX_ONLY = os.environ.get(VARIABLE, "") not in ("", "0")
LINUX = sys.platform == "linux" and not POSIX_ONLY
MACOS = sys.platform == "darwin" and not POSIX_ONLY

NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""The numbers of the errors that mean that a filesystem does not support an operation.

The first two are one number on Linux, and two on macOS.
"""

_KERNEL = Path("/") if LINUX else Path(os.devnull)  # nothing can be below a device


def kernel_file(path: str) -> Path:
    """Return a file or folder of Linux's /proc or /sys by its path.

    On other systems nothing exists at the path that is returned: even if they have a /proc, it is
    another one.
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

    macOS's fsync(2) leaves the data in the cache of the disk; F_FULLFSYNC (fcntl(2)) does not.

    Args:
        fd: the file.
        data_only: whether its times need not be durable (fdatasync(2)), where that is quicker.

    Raises:
        OSError: it cannot be made durable.
    """
    full = offered(fcntl, "F_FULLFSYNC")
    if full is not None:
        try:
            fcntl.fcntl(fd, full)
            return
        except OSError as error:
            if error.errno not in {*NOT_SUPPORTED, errno.ENOTTY}:
                raise
    data = offered(os, "fdatasync") if data_only else None
    (data or os.fsync)(fd)
