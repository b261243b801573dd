"""A process that takes memory, holds it, and gives it back: ``hog.py BYTES RATE HOLD_SECONDS``."""

from __future__ import annotations

import sys
import time


def main() -> None:
    nbytes, rate, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    taken: list[bytearray] = []
    step = 4 << 20
    while len(taken) * step < nbytes:
        taken.append(bytearray(b"\1") * step)
        time.sleep(step / rate)
    print("holding", flush=True)
    time.sleep(seconds)


if __name__ == "__main__":
    main()
