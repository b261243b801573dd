"""Run a command and measure it: wall and CPU seconds, peak memory, exit code.

``python -m benchmarks.measure -- COMMAND...`` prints them as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measurement:
    """What one run of a command cost.

    Attributes:
        wall_s: seconds from start to end.
        cpu_s: user and system seconds of the process and of all children it waited for.
        peak_rss: bytes; the largest of any single one of these processes, not their sum.
        exit_code: as a shell says it, 128 + the signal's number for a killed process.
    """

    wall_s: float
    cpu_s: float
    peak_rss: int
    exit_code: int


def measure(command: list[str], log: Path | None = None) -> Measurement:
    """Run a command to its end, its output going to ``log`` (appended) or nowhere.

    The kernel counts the memory of the process that starts a child towards the child's peak, so
    call this from a small one: without torch in it.
    """
    with (log or Path(os.devnull)).open("ab") as output:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    child.returncode = code  # it is reaped: Popen must not wait for it again
    return Measurement(
        wall_s=wall,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_rss=usage.ru_maxrss * 1024,  # Linux gives KiB
        exit_code=code if code >= 0 else 128 - code,
    )


def main() -> None:
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    if not command:
        sys.exit("usage: python -m benchmarks.measure -- COMMAND...")
    print(json.dumps(asdict(measure(command))))


if __name__ == "__main__":
    main()
