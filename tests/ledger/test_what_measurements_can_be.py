"""Promise: a ledger from elsewhere has measurements that can be, or is refused."""

from __future__ import annotations

import pytest

from resumerge.ledger.unit_measurements import (
    MODEL_SUMS,
    UNIT_SUMS,
    UnitMeasurements,
    are_measurements,
)

SUMS = [float(number) + 0.1 for number in range(len(UNIT_SUMS) + 2 * len(MODEL_SUMS))]
MEASUREMENTS = UnitMeasurements.empty(["base", "math", "code"]).plus([SUMS])
TEXT = MEASUREMENTS.as_json()


def test_it_is_read_again_bit_by_bit() -> None:
    measurements = MEASUREMENTS.plus([[number / 3 for number in SUMS]])
    assert UnitMeasurements.of_json(measurements.as_json()) == measurements
    assert are_measurements(measurements.as_json()) and are_measurements(None)


def test_only_a_product_can_be_negative() -> None:
    along = len(UNIT_SUMS) + MODEL_SUMS.index("along")
    for place in range(len(SUMS)):
        sums = [*SUMS]
        sums[place] = -1.0
        text = UnitMeasurements(MEASUREMENTS.models, 1, tuple(sums)).as_json()
        assert are_measurements(text) == (place in (along, along + len(MODEL_SUMS)))


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "1", '"x"', "[" * 100_000, '{"models": [], "blocks": 0, "sums": []}'),
        TEXT.replace("0.1", "NaN", 1),
        TEXT.replace("0.1", "1e201", 1),
        TEXT.replace("0.1", '"a"', 1),
        TEXT.replace("0.1", "1", 1),
        TEXT.replace("0.1, ", "", 1),
        TEXT.replace('"blocks": 1', '"blocks": true'),
        TEXT.replace('"blocks": 1', '"blocks": -1'),
        TEXT.replace('"base"', "1"),
        TEXT.replace('"base"', f'"{"x" * 5000}"'),
        TEXT.replace('["base", "math", "code"]', "7"),
    ],
)
def test_what_cannot_be_is_none(text: str) -> None:
    assert not are_measurements(text)
