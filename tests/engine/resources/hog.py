"""A process that takes memory once it is told to: ``hog.py LEAVE SECONDS``.

It reads a line, takes memory until no more than LEAVE bytes are available, and from then on for
SECONDS anything that is given back; then it leaves.
"""

from __future__ import annotations

import sys
import time

from resumerge.host.memory import MemoryGauge

STEP = 4 << 20


def main() -> None:
    leave, seconds = int(sys.argv[1]), float(sys.argv[2])
    gauge, taken = MemoryGauge(), []
    print("ready", flush=True)
    sys.stdin.readline()
    until = float("inf")
    while time.monotonic() < until:
        if gauge.measure().available > leave + STEP:
            taken.append(bytearray(b"\1") * STEP)
        else:
            until = min(until, time.monotonic() + seconds)
        time.sleep(0.004)


if __name__ == "__main__":
    main()
