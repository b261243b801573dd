"""``python -m fuzz.kernel_calls``: see `main`."""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzz.kernel_calls.session import Session

FINDINGS = 3
"""The exit code of the process that makes the calls; sanitizers have others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases in a child process, and print a summary. Return 1 if there are findings, else 0.

    A finding is an unexpected exception, or an end of the child such as a sanitizer causes.
    """
    parser = argparse.ArgumentParser(prog="make sanitize")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--calls", type=int, help="how many, instead of how long")
    parser.add_argument("--seed", default="0", help="of the draw (0)")
    parser.add_argument("--case", type=int, help="the number of one case, to run it alone")
    given = parser.parse_args(arguments)
    now = mmap.mmap(-1, 8)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        child = os.fork()
        if not child:
            session = Session(given.seed, Path(folder), now)
            if given.case is None:
                session.run(given.seconds, given.calls)
            else:
                session.case(given.case)
            sys.stdout.flush()
            os._exit(FINDINGS if session.has_findings else 0)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, FINDINGS):
        number = int.from_bytes(now[:8], "little")
        print(f"FOUND by case {number} of seed {given.seed}: the process ended with {code}")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
