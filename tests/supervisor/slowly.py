"""A merge method for tests: the mean, slowly, and with an accident if the test requests one.

An accident is the name of a file in the folder `SLOWLY_ACCIDENTS`; `hurry` ends the slowness. The
file `hold` has a number: after this number of blocks a process waits until the file is removed, an
accident is requested, or a signal has requested that the process stop. The method computes with
kernels: processes that import torch would take ten times as long to start. With `SLOWLY_WITH_TORCH`
it computes with torch, to the same bits, for tests of torch's memory.
"""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy

from resumerge import kernels
from resumerge.methods import KernelMethod, Method

HUNGER = 1_000_000_000
suffered = []
"""A `None` for each block of this process."""


class Slowly:
    """``mean(x_i)``."""

    name = "slowly"
    summary = "the mean, slowly"
    parameters = ()
    fewest = 2
    version = 1


if os.environ.get("SLOWLY_WITH_TORCH"):

    class WithTorch(Slowly, Method):
        def block(self, tensor, inputs, block, statistics):
            suffer(blocks=1)
            return sum(inputs) / len(inputs)

else:

    class WithKernels(Slowly, KernelMethod):
        def compute(self, tensor, inputs, run, statistics, out):
            suffer(blocks=len(run))
            kernels.weighted_sum(inputs, [1 / len(inputs)] * len(inputs), out)


def suffer(blocks):
    """Sleep for some blocks, and cause the requested accident; a file says that this has begun."""
    accidents = Path(os.environ["SLOWLY_ACCIDENTS"])
    (accidents / "begun").touch()
    suffered.extend([None] * blocks)
    with suppress(FileNotFoundError):
        while len(suffered) > int((accidents / "hold").read_text()) and not is_let_go(accidents):
            time.sleep(0.01)
    if not happens("hurry", once=False):
        time.sleep(float(os.environ.get("SLOWLY_SECONDS", "0.08")) * blocks)
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


def is_let_go(accidents):
    """Return whether an accident is requested, or a signal has requested that this process stop."""
    handler = signal.getsignal(signal.SIGTERM)  # a method of the request to stop
    asked = getattr(getattr(handler, "__self__", None), "requested", False)
    return asked or any(path.name not in ("begun", "hold") for path in accidents.iterdir())


def happens(accident, *, once):
    """Return whether there is a file of this name; remove it if the accident happens once."""
    path = Path(os.environ["SLOWLY_ACCIDENTS"]) / accident
    if path.exists():
        if once:
            path.unlink()
        return True
    return False
