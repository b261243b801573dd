"""Promise: a writer of a ledger waits for another writer; a check sees the rows of one moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import make
from waiting import HANGS_SECONDS

from resumerge.ledger import Ledger, UnitCommit
from resumerge.ledger.validity import check_agreement


@pytest.fixture
def ledgers(tmp_path: Path) -> Iterator[tuple[Ledger, Ledger]]:
    """Yield a ledger twice, opened as by two processes."""
    with (
        closing(make(tmp_path / "ledger.db")) as ledger,
        closing(Ledger(tmp_path / "ledger.db")) as other,
    ):
        yield ledger, other


def test_a_write_waits_for_another(ledgers: tuple[Ledger, Ledger]) -> None:
    """A write may depend on what was read just before."""
    ledger, other = ledgers
    writing = threading.Event()

    def write() -> None:
        with other._db.transaction():
            other.attempts.start({"pid": 2, "host": "here", "boot_id": None})
            writing.set()
            time.sleep(0.2)
            other.events.add("first")

    thread = threading.Thread(target=write)
    thread.start()
    assert writing.wait(HANGS_SECONDS)
    ledger.events.add("second")
    thread.join()
    told = [(event["kind"], event["attempt"]) for event in ledger.events.all()]
    assert told == [("first", 1), ("second", 1)]


def test_rows_are_compared_as_they_are_at_one_moment(
    ledgers: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins an attempt and commits between the reading of two tables."""
    ledger, other = ledgers

    def meanwhile(tables: Mapping[str, Any], units: Any) -> None:
        number = other.attempts.start({"pid": 2, "host": "here", "boot_id": None})
        done = UnitCommit(
            number=0, hashes=bytes(16), input_hashes=b"", checksum=CHECKSUM, seconds=0.5
        )
        other.units.commit_batch(number, 1, [done], {"units_committed": 1, "bytes_committed": 16})
        check_agreement(tables, units)

    monkeypatch.setattr("resumerge.ledger.ledger.check_agreement", meanwhile)
    ledger.check_rows()
    monkeypatch.undo()
    ledger.check_rows()
    assert ledger.units.progress()[0].checksum == CHECKSUM


CHECKSUM = "e5189a9599e3f86205ea23ef06e28b2d"
"""The checksum of the one block's hash."""
