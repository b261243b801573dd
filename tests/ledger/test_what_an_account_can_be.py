"""Promise: a ledger from elsewhere has accounts of numbers that can be, or is refused."""

from __future__ import annotations

import pytest

from resumerge.ledger.unit_account import MODEL_SUMS, UNIT_SUMS, UnitAccount, is_account

SUMS = [float(number) + 0.1 for number in range(len(UNIT_SUMS) + 2 * len(MODEL_SUMS))]
ACCOUNT = UnitAccount.begun(["base", "math", "code"]).plus([SUMS])
TEXT = ACCOUNT.as_json()


def test_it_is_read_again_bit_by_bit() -> None:
    account = ACCOUNT.plus([[number / 3 for number in SUMS]])
    assert UnitAccount.of_json(account.as_json()) == account
    assert is_account(account.as_json()) and is_account(None)


def test_only_a_product_can_be_negative() -> None:
    along = len(UNIT_SUMS) + MODEL_SUMS.index("along")
    for place in range(len(SUMS)):
        sums = [*SUMS]
        sums[place] = -1.0
        text = UnitAccount(ACCOUNT.models, 1, tuple(sums)).as_json()
        assert is_account(text) == (place in (along, along + len(MODEL_SUMS)))


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
    assert not is_account(text)
