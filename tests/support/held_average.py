"""A user's merge method that waits as long as a file exists, so that a test can hold a merge."""

import os
import time
from pathlib import Path

from resumerge.methods import Method

RECIPE = "merge_method: held_average\nmodels: [{model: base}, {model: math}]\n"


def variables(hold: Path) -> dict[str, str]:
    """Return the environment variables with which a merge waits until a file is removed."""
    return {"RESUMERGE_METHODS": __file__, "RESUMERGE_TEST_HOLD": str(hold)}


class HeldAverage(Method):
    """``sum(x_i) / n``; the last layer of four waits."""

    name = "held_average"
    summary = "the mean, held"

    def block(self, tensor, inputs, block, statistics):
        hold = Path(os.environ["RESUMERGE_TEST_HOLD"])
        while "layers.3." in tensor.name and hold.exists():
            time.sleep(0.02)
        return sum(inputs) / len(inputs)
