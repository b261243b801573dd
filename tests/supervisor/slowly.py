"""A merge method for tests: the mean, slowly, and with an accident where the test wants one.

An accident is the name of a file in the folder `SLOWLY_ACCIDENTS`; `hurry` ends the slowness.
The method computes with kernels: processes that import torch would take ten times as long to start.
"""

import ctypes
import os
import time
from pathlib import Path

import numpy

from resumerge import kernels
from resumerge.methods import KernelMethod

HUNGER = 1_000_000_000


class Slowly(KernelMethod):
    """``mean(x_i)``."""

    name = "slowly"
    summary = "the mean, slowly"
    parameters = ()
    fewest = 2
    version = 1

    def compute(self, tensor, inputs, run, statistics, out):
        if not happens("hurry", once=False):
            time.sleep(float(os.environ.get("SLOWLY_SECONDS", "0.08")) * len(run))
        if happens("segfault", once=True) or happens("segfaults", once=False):
            ctypes.string_at(0)
        if happens("hunger", once=True):
            numpy.ones(HUNGER, dtype="uint8")
        if happens("numpy asks too much", once=True):
            numpy.ones(1 << 60, dtype="uint8")
        if happens("torch asks too much", once=True):
            import torch

            torch.empty(1 << 50)
        if happens("hang", once=True):
            time.sleep(1000)
        kernels.weighted_sum(inputs, [1 / len(inputs)] * len(inputs), out)


def happens(accident, *, once):
    """Whether a file of that name is there; it is removed if it is for one time."""
    path = Path(os.environ["SLOWLY_ACCIDENTS"]) / accident
    if path.exists():
        if once:
            path.unlink()
        return True
    return False
