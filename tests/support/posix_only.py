"""`resumerge` on a simulated system with nothing beyond POSIX: ``posix_only.py ARGUMENTS``.

The variable RESUMERGE_POSIX_ONLY makes the package's seam offer nothing beyond POSIX. Also removed
are names in Python's modules, functions of the C library, /proc and /sys, so a use of one that does
not go through the seam fails. The package's uses of /proc, /sys, C functions and FICLONE are
recorded in the file that NOTED names. psutil exists on other systems, too, and may read /proc.

If the file that MEMORY names contains a number, psutil reports so many bytes as available.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTED, MEMORY = "POSIX_ONLY_NOTED", "POSIX_ONLY_MEMORY"
PROGRAM = [sys.executable, "-P", __file__]
"""The command in the place of `resumerge`."""

MISSING = {
    os: (
        *("fdatasync", "posix_fadvise", "posix_fallocate", "copy_file_range", "sendfile", "splice"),
        *("memfd_create", "eventfd", "pidfd_open", "pipe2", "setresuid", "getresuid", "getrandom"),
        *("sched_getaffinity", "sched_setaffinity", "listxattr", "getxattr", "setxattr"),
        *("O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME"),
        *(name for name in dir(os) if name.startswith(("POSIX_FADV_", "RWF_"))),
    ),
    fcntl: [name for name in dir(fcntl) if name.startswith(("FICLONE", "F_OFD_", "F_ADD_SEALS"))],
    mmap: [name for name in dir(mmap) if name.endswith(("HUGEPAGE", "MAP_POPULATE"))],
    resource: ("prlimit", "RUSAGE_THREAD"),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    time: ("CLOCK_BOOTTIME",),
}
C_FUNCTIONS = {
    *("fallocate", "sync_file_range", "prctl", "statfs", "malloc_trim", "mallopt", "syscall"),
    "renameat2",
}
FOLDERS = ("/proc/", "/sys/")
PACKAGE = str(Path(__file__).parents[2] / "resumerge")
_STANDARD = str(Path(os.__file__).parent)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose uses of Linux are recorded in a folder."""
    return {
        "RESUMERGE_POSIX_ONLY": "1",
        NOTED: str(folder / "noted.txt"),
        MEMORY: str(folder / "memory.txt"),
    }


def noted(folder: Path) -> list[str]:
    """Return the uses of Linux that were recorded in a folder."""
    path = folder / "noted.txt"
    return path.read_text().splitlines() if path.exists() else []


def _take_away() -> None:
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir"):
        path = arguments[0]
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if str(name).startswith(FOLDERS) and _asker() != "psutil":
            _note(f"{event} {name}")
            raise FileNotFoundError(2, "there is no such file on other systems", name)
    elif event == "ctypes.dlsym" and C_FUNCTIONS & {str(argument) for argument in arguments}:
        _note(f"{event} {arguments[1]}")
        raise AttributeError(arguments[1])
    elif event == "fcntl.ioctl" and arguments[1] == 0x40049409:  # FICLONE
        _note("FICLONE")


def _note(what: str) -> None:
    """Record a use if the package itself is the caller; libraries find nothing, as elsewhere."""
    if _asker() == "resumerge":
        fd = os.open(os.environ[NOTED], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(fd, f"{what}\n".encode())
        os.close(fd)


def _asker() -> str:
    """Return the package whose code is the caller: the nearest one that is not Python's own."""
    for name in _callers():
        if name.startswith(PACKAGE):
            return "resumerge"
        if "site-packages" in name:
            return name.partition("site-packages/")[2].partition("/")[0]
    return ""


def _callers() -> Iterator[str]:
    frame = sys._getframe(3)
    while frame is not None:
        name = frame.f_code.co_filename
        if "site-packages" in name or not name.startswith(("<", _STANDARD, __file__)):
            yield name
        frame = frame.f_back  # type: ignore[assignment]


def _play_memory() -> None:
    import psutil

    real = psutil.virtual_memory

    def virtual_memory() -> Any:
        try:
            said = int(Path(os.environ[MEMORY]).read_text())
        except (OSError, ValueError):
            return real()
        return real()._replace(available=said)

    psutil.virtual_memory = virtual_memory


def main() -> None:
    _take_away()
    _play_memory()
    from resumerge.__main__ import main as resumerge

    resumerge()


if __name__ == "__main__":
    main()
