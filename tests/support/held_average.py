"""A user's merge method that waits as long as a file exists, so that a test can hold a merge.

A signal that requests the merge to stop ends the wait, too, once the process has handled it.
"""

import os
import signal
import time
from pathlib import Path

from resumerge.methods import Method

RECIPE = "merge_method: held_average\nmodels: [{model: base}, {model: math}]\n"


def variables(hold: Path) -> dict[str, str]:
    """Return the environment variables with which a merge waits until a file is removed."""
    return {"RESUMERGE_METHODS": __file__, "RESUMERGE_TEST_HOLD": str(hold)}


def reached(hold: Path) -> Path:
    """Return the file that is there once a merge has waited."""
    return hold.with_name(f"{hold.name}.reached")


class HeldAverage(Method):
    """``sum(x_i) / n``; the last layer of four waits."""

    name = "held_average"
    summary = "the mean, held"

    def block(self, tensor, inputs, block, statistics):
        hold = Path(os.environ["RESUMERGE_TEST_HOLD"])
        while "layers.3." in tensor.name and hold.exists() and not is_asked_to_stop():
            reached(hold).touch()
            time.sleep(0.02)
        return sum(inputs) / len(inputs)


def is_asked_to_stop():
    """Return whether a signal has requested this process to stop."""
    handler = signal.getsignal(signal.SIGTERM)  # a method of the request to stop
    return getattr(getattr(handler, "__self__", None), "requested", False)
