"""A merge method of a user's: the mean, by torch, and slow enough to be interrupted anywhere."""

import time

from resumerge.methods import Method

RECIPE = "merge_method: slow_average\nmodels: [{model: base}, {model: math}, {model: code}]\n"
VARIABLES = {"RESUMERGE_METHODS": __file__}


class SlowAverage(Method):
    """``sum(x_i) / n``."""

    name = "slow_average"
    summary = "the mean, slowly"

    def block(self, tensor, inputs, block, statistics):
        time.sleep(0.02)
        return sum(inputs) / len(inputs)
