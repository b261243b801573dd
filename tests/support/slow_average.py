"""A user's merge methods: the mean, slow enough to be interrupted anywhere.

`slow_average` computes with torch, as many methods of users do; `slow_mean` with kernels, whose
processes start in a tenth of the time. While the file that SLOW_HOLD names exists, a process waits
after as many blocks as the file's number, or until a signal has requested it to stop.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from resumerge import kernels
from resumerge.methods import KernelMethod, Method

RECIPE = "merge_method: slow_average\nmodels: [{model: base}, {model: math}, {model: code}]\n"
MEAN = RECIPE.replace("slow_average", "slow_mean")
VARIABLES = {"RESUMERGE_METHODS": __file__}
SECONDS = float(os.environ.get("SLOW_SECONDS", "0.02"))
"""The seconds of each block."""

begun = []
"""A `None` for each block of this process."""


class SlowAverage(Method):
    """``sum(x_i) / n``."""

    name = "slow_average"
    summary = "the mean, slowly"

    def block(self, tensor, inputs, block, statistics):
        be_slow(1)
        return sum(inputs) / len(inputs)


class SlowMean(KernelMethod):
    """``sum(x_i) / n``."""

    name = "slow_mean"
    summary = "the mean, slowly"
    parameters = ()
    fewest = 2
    version = 1

    def compute(self, tensor, inputs, run, statistics, out):
        be_slow(len(run))
        kernels.weighted_sum(inputs, [1 / len(inputs)] * len(inputs), out)


def be_slow(blocks):
    """Sleep for the time of some blocks, and wait while a test holds the process."""
    begun.extend([None] * blocks)
    time.sleep(SECONDS * blocks)
    with suppress(OSError, ValueError):
        hold = Path(os.environ.get("SLOW_HOLD", ""))
        while len(begun) > int(hold.read_text()) and not is_asked_to_stop():
            time.sleep(0.01)


def is_asked_to_stop():
    """Return whether a signal has requested this process to stop."""
    handler = signal.getsignal(signal.SIGTERM)  # a method of the request to stop
    return getattr(getattr(handler, "__self__", None), "requested", False)
