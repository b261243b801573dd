"""A process that takes memory on request: ``hog.py LEAVE SECONDS``.

It reads a line, and takes memory until no more than LEAVE bytes are available. For the next SECONDS
it takes any memory that becomes available; then it ends. It takes the last part slowly, so that a
process that has measured the memory has time to take some, also on a busy machine.
"""

from __future__ import annotations

import sys
import time

from resumerge.host.memory import MemoryGauge

STEP, SMALL_STEP = 4 << 20, 1 << 20
LAST = 64 << 20
"""The number of bytes at the end that are taken in small steps."""


def main() -> None:
    leave, seconds = int(sys.argv[1]), float(sys.argv[2])
    gauge, taken = MemoryGauge(), []
    print("ready", flush=True)
    sys.stdin.readline()
    until = float("inf")
    while time.monotonic() < until:
        left = gauge.measure().available - leave
        step = STEP if left > LAST else SMALL_STEP
        if left > step:
            taken.append(bytearray(b"\1") * step)
        else:
            until = min(until, time.monotonic() + seconds)
        time.sleep(0.004 if step == STEP else 0.02)


if __name__ == "__main__":
    main()
