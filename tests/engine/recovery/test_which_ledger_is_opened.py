"""Promise: a ledger is restored where it is damaged, and left as it is where the disk fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import change, make

from resumerge.engine.recovery.open_ledger import open_ledger, read_ledger
from resumerge.errors import InputError
from resumerge.event_kinds import EventKind
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger, take_snapshot
from resumerge.storage import Storage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make the folder of a run, with a snapshot that is older than its ledger."""
    with closing(make(tmp_path / LEDGER_FILE)) as ledger:
        take_snapshot(ledger, Storage())
        ledger.events.add("after")
        ledger.use_one_file()
    return tmp_path


def opened(folder: Path) -> tuple[list[str], bool]:
    """Open the ledger; return the kinds of its events, and whether it has to be compared."""
    ledger, restored = open_ledger(folder, Storage())
    with closing(ledger):
        return [event["kind"] for event in ledger.events.all()], restored


def damage(path: Path) -> None:
    path.write_bytes(b"damaged" * 1000)


def contradict(path: Path) -> None:
    change(path, "UPDATE units SET nbytes = 17")


def test_what_is_intact_is_opened_as_it_is(folder: Path) -> None:
    assert opened(folder) == (["after"], False)


@pytest.mark.parametrize("spoil", [damage, contradict, Path.unlink])
def test_a_restored_one_is_to_be_compared_until_it_was(
    folder: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(folder / LEDGER_FILE)
    for _ in range(2):
        assert opened(folder) == (["ledger_restored"], True)
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        ledger.events.add(EventKind.LEDGER_RECONCILED)
    assert opened(folder)[1] is False
    damage(folder / LEDGER_FILE)
    assert opened(folder)[1] is True


def test_a_snapshot_that_cannot_be_opened_now_is_not_damaged(folder: Path) -> None:
    """The run need not start over, because the snapshot can be opened later."""
    damage(folder / LEDGER_FILE)
    (folder / f"{SNAPSHOT_FILE}-wal").mkdir()
    with pytest.raises(sqlite3.OperationalError):
        open_ledger(folder, Storage())
    (folder / f"{SNAPSHOT_FILE}-wal").rmdir()
    assert opened(folder) == (["ledger_restored"], True)


def test_who_only_reads_restores_nothing(folder: Path) -> None:
    contradict(folder / LEDGER_FILE)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with closing(read_ledger(folder)) as ledger:
        assert ledger.path.name == SNAPSHOT_FILE
        assert ledger.events.all() == []
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: after[name] for name in before} == before


def test_where_neither_can_be_read_both_reasons_are_told(folder: Path) -> None:
    contradict(folder / LEDGER_FILE)
    damage(folder / SNAPSHOT_FILE)
    with pytest.raises(InputError, match="Neither the ledger nor its snapshot") as refused:
        read_ledger(folder)
    assert "units.nbytes" in str(refused.value)
    assert "not a database" in str(refused.value)
