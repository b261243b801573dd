"""How the process of a command begins and ends: at the cost of the command, and of little else."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from resumerge.host.garbage import collect_late


def main() -> None:
    """Entry point of ``resumerge`` and ``python -m resumerge``; ends the process."""
    collect_late()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's would spin, and have nothing to do
    from resumerge.cli.main import main as command

    code: object = None
    try:
        command()
    except SystemExit as end:
        code = end.code
    if code is None or isinstance(code, int):
        _leave(code or 0)
    raise SystemExit(code)


def _leave(code: int) -> None:
    """End the process as Python does, but for taking its objects apart one by one: the kernel does
    that at once. Threads are waited for, what is registered for the end is done, output is flushed.

    Where the last output cannot be written, this returns, and Python says so in its own way.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed by who started this
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)
