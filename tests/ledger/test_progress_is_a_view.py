"""Promise: other programs see a run's progress over time in the view `progress`, as it is declared
here and not otherwise.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_rows import change, make, query

from resumerge.ledger import Ledger, Sample
from resumerge.ledger.validity import InvalidLedger

SAMPLE = Sample(rss=100, available=1, budget=200, batch_bytes=50, bytes_done=0)


def sampled(path: Path) -> None:
    with closing(make(path)) as ledger:
        ledger.attempts.start({"pid": 1, "host": "here"})
        for done in (4, 12):
            ledger.units.commit_batch(
                1, 1, [], {"bytes_committed": 5}, replace(SAMPLE, bytes_done=done)
            )
        ledger.use_one_file()


def test_a_row_for_each_moment(tmp_path: Path) -> None:
    sampled(tmp_path / "ledger.db")
    rows = query(tmp_path / "ledger.db", "SELECT * FROM progress ORDER BY at")
    assert [(row["bytes_done"], row["bytes_total"], row["percent"]) for row in rows] == [
        (4, 16, 25.0),
        (12, 16, 75.0),
    ]
    assert {(row["attempt"], row["rss"], row["budget"], row["batch_bytes"]) for row in rows} == {
        (1, 100, 200, 50)
    }


def test_an_older_ledger_gets_it_and_a_complete_one_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    sampled(path)
    change(path, "DROP VIEW progress")
    for _ in range(2):
        with closing(Ledger(path)) as ledger:
            ledger.check()
            ledger.use_one_file()
        assert len(query(path, "SELECT * FROM progress")) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW progress AS SELECT 1",
        "CREATE VIEW other AS SELECT * FROM samples",
        "CREATE TABLE progress (at, percent)",
    ],
)
def test_another_view_is_refused(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "ledger.db"
    sampled(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"DROP VIEW progress; {sql}")
    if "TABLE" in sql:  # of somebody's own, like any other
        with closing(Ledger(path)) as ledger:
            ledger.check()
        return
    with pytest.raises(InvalidLedger, match="which does not belong in a ledger"):
        Ledger(path).close()
