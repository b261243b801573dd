"""A merge method for tests: the mean, slowly, and with an accident where the test wants one.

An accident is the name of a file in the folder `SLOWLY_ACCIDENTS`.
"""

import ctypes
import os
import time
from pathlib import Path

import numpy

from resumerge.methods import Method

HUNGER = 1_000_000_000


class Slowly(Method):
    """``mean(x_i)``."""

    name = "slowly"
    summary = "the mean, slowly"
    parameters = ()
    fewest = 2
    version = 1

    def block(self, tensor, inputs, block, statistics):
        time.sleep(float(os.environ.get("SLOWLY_SECONDS", "0.08")))
        if happens("segfault", once=True) or happens("segfaults", once=False):
            ctypes.string_at(0)
        if happens("hunger", once=True):
            numpy.ones(HUNGER, dtype="uint8")
        if happens("numpy asks too much", once=True):
            numpy.ones(1 << 60, dtype="uint8")
        if happens("torch asks too much", once=True):
            inputs[0].new_empty(1 << 50)
        if happens("hang", once=True):
            time.sleep(1000)
        return sum(inputs) / len(inputs)


def happens(accident, *, once):
    """Whether a file of that name is there; it is removed if it is for one time."""
    path = Path(os.environ["SLOWLY_ACCIDENTS"]) / accident
    if path.exists():
        if once:
            path.unlink()
        return True
    return False
