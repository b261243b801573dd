"""`resumerge` without root's privileges, so that the permissions of files count."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from resumerge.cli.main import main


class _Head(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_privileges() -> None:
    """Drop this process's capabilities, so that the permissions of files count for it."""
    version_3 = 0x20080522
    nothing = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capset(ctypes.byref(_Head(version_3, 0)), ctypes.byref(nothing)) == 0


def unprivileged(words: Sequence[str | bytes], folder: Path) -> tuple[int, str]:
    """Run a command in a folder without privileges; return its exit code and its output."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            try:
                os.chdir(folder)
                os.dup2(said.fileno(), 2)
                sys.stdout = sys.stderr = os.fdopen(
                    2, "w", errors="backslashreplace", closefd=False
                )
                drop_privileges()
                sys.argv = ["resumerge", *map(os.fsdecode, words)]
                main()
                sys.stderr.flush()
                os._exit(0)
            except SystemExit as ended:
                sys.stderr.flush()
                os._exit(int(str(ended.code or 0)))
            finally:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return code, said.read().decode()
