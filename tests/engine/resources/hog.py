"""A process that takes memory on request: ``hog.py LEAVE``.

It reads a line, takes memory until no more than LEAVE bytes are available, and says ``taken``. From
then on it takes any memory that becomes available, until its stdin is closed. It takes the last
part slowly, so that a process that has measured the memory has time to take some, also on a busy
machine.
"""

from __future__ import annotations

import select
import sys

from resumerge.host.memory import MemoryGauge

STEP, SMALL_STEP = 4 << 20, 1 << 20
LAST = 64 << 20
"""The number of bytes at the end that are taken in small steps."""


def main() -> None:
    leave = int(sys.argv[1])
    gauge, taken, has_said = MemoryGauge(), [], False
    print("ready", flush=True)
    sys.stdin.readline()
    pause = 0.0
    while not select.select([sys.stdin], [], [], pause)[0]:  # else it is closed
        left = gauge.measure().available - leave
        step = STEP if left > LAST else SMALL_STEP
        if left > step:
            taken.append(bytearray(b"\1") * step)
        elif not has_said:
            print("taken", flush=True)
            has_said = True
        pause = 0.004 if step == STEP else 0.02


if __name__ == "__main__":
    main()
