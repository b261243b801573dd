"""Promise: codes stand for the numbers that their standards say."""

from __future__ import annotations

import numpy as np

from resumerge.tensors.quantised.codes import E2M1, E8M0, whole_numbers


def test_the_numbers_of_codes_are_those_of_their_standards() -> None:
    assert E2M1.numbers[:8] == (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert [-x for x in E2M1.numbers[8:]] == list(E2M1.numbers[:8])
    assert (E8M0.numbers[0], E8M0.numbers[127], E8M0.numbers[254]) == (2.0**-127, 1, 2.0**127)
    assert np.isnan(E8M0.table[255])
    assert whole_numbers(4, 8).table[0x2F].tolist() == [7, -6], "the lower bits come first"
