"""Promise: what anybody may have written in the place of a lease is read as what it is."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from made_up_leases import ELSEWHERE, write
from plain_folder import PlainFolder

from resumerge.mirror.lease_record import LeaseRecord, read_lease
from resumerge.mirror.names import lease_name


def found(store: PlainFolder, token: int = 1) -> LeaseRecord:
    record = read_lease(store)
    assert record is not None and record.token == token
    return record


def test_the_highest_token_counts_and_one_that_vanishes_gives_way(store: PlainFolder) -> None:
    write(store, ELSEWHERE, 1)
    write(store, replace(ELSEWHERE, host="third"), 12)

    def vanishes(operation: str) -> None:
        if operation == "get":
            (store.folder / lease_name(12)).unlink(missing_ok=True)

    assert found(store, 12).host == "third"
    store.fails = vanishes
    assert found(store, 1).host == "elsewhere"


def test_a_file_that_is_no_lease_is_none(store: PlainFolder) -> None:
    assert read_lease(store) is None
    store.put({".resumerge/lease-1.json": b"", ".resumerge/lease-000001.json.part": b""})
    assert read_lease(store) is None


@pytest.mark.parametrize(
    "name", ["run", "owner", "host", "pid", "heartbeat", "seconds", "released"]
)
def test_each_value_of_a_lease_has_its_type(store: PlainFolder, name: str) -> None:
    write(store, replace(ELSEWHERE, **{name: [1]}))
    assert not found(store).readable


def written(**facts: object) -> bytes:
    """Return the content of a lease's file with other values, by their keys."""
    return json.dumps(json.loads(ELSEWHERE.as_bytes()) | facts).encode()


def test_the_keys_of_the_file() -> None:
    """Programs of other versions read the file."""
    keys = ("run", "owner", "host", "boot_id", "space", "pid", "born", "beat", "at", "seconds")
    assert list(json.loads(ELSEWHERE.as_bytes())) == [*keys, "released"]


@pytest.mark.parametrize(
    ("content", "readable"),
    [
        (written(), True),
        (written(seconds=60, more="of a later version"), True),
        (written().ljust(1 << 16), True),
        (written().ljust((1 << 16) + 1), False),
        (written(host="h" * 300), True),
        (written(host="h" * 301), False),
        (written(seconds=math.nan), False),
        (written(seconds=math.inf), False),
        (written().replace(b'"beat"', b'"heartbeat"'), False),
        (b"[" * 60_000, False),
        (b"[]", False),
        (b"null", False),
        (b"\xff", False),
        (b"", False),
    ],
    ids=range(14),
)
def test_what_no_run_can_have_written_is_not_readable(
    store: PlainFolder, content: bytes, readable: bool
) -> None:
    store.put({lease_name(1): content})
    record = found(store)
    assert record.readable is readable
    assert record.raw == (content if len(content) <= 1 << 16 else b""), "it is watched for changes"


def test_who_holds_it_is_shown_in_one_line_without_what_moves_a_terminals_cursor() -> None:
    assert str(replace(ELSEWHERE, host="far\n\x1b[2Jaway")) == r"pid 77 on far\n\x1b[2Jaway"
    assert str(LeaseRecord(pid=5, readable=False)) == "an unknown machine"
