"""Promise: whatever ends an attempt, its ledger says how, and the run goes on from there."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from merging import merge, shards_of
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.execute.scheduler import Scheduler
from resumerge.errors import Interrupted, Reason, Resumable
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger
from resumerge.ledger.attempts import Attempts
from resumerge.ledger.run_store import RunStore

RECIPE = (
    "merge_method: linear\nmodels: [{model: base}, {model: math}]\n"
    "parameters: {weight: 0.5}\ndtype: float32\n"
)

ENDS: dict[str, tuple[BaseException, str, str, str | None]] = {
    "a signal": (Interrupted(15), "interrupted", "interrupted", None),
    "for now": (Resumable(Reason.MEMORY, "wait"), "error", "interrupted", "memory"),
    "a full disk": (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "error", "interrupted",
                    "disk_full"),
    "a ledger that cannot be written": (sqlite3.OperationalError("disk I/O error"), "error",
                                        "interrupted", "io"),
    "no memory": (MemoryError(), "oom", "interrupted", None),
    "a mistake": (ZeroDivisionError("mistake"), "error", "failed", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), TWO_LAYERS)


@pytest.mark.parametrize("name", ENDS)
def test_ended_by(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    error, outcome, state, cause = ENDS[name]

    def fail(scheduler: Scheduler) -> None:
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error) if state == "failed" else
                                                       (Resumable, Interrupted)):  # fmt: skip
        patch.setattr(Scheduler, "run", fail)
        merge(models, RECIPE, tmp_path / "out")
    (folder,) = RunStore(tmp_path / "out.state").runs()
    for file in (LEDGER_FILE, SNAPSHOT_FILE):
        with closing(Ledger(folder / file, read_only=True)) as ledger:
            [attempt] = ledger.attempts.all()
            assert attempt["outcome"] == outcome and attempt["ended"]
            assert attempt["peak_rss"] > 0 and attempt["seconds"] > 0
            assert ledger.run()["state"] == state
            causes = [event["data"].get("cause") for event in ledger.events.all("stopped")]
    if cause is None:
        assert causes == []
    else:
        assert len(causes) == 1 and str(causes[0]).startswith(cause)
    merge(models, RECIPE, tmp_path / "out")
    merge(models, RECIPE, tmp_path / "calm")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "calm")
    with closing(Ledger(folder / LEDGER_FILE, read_only=True)) as ledger:
        assert [attempt["outcome"] for attempt in ledger.attempts.all()] == [outcome, "done"]
        assert ledger.run()["state"] == "done"


@pytest.mark.parametrize(("table", "step"), [(Attempts, "end"), (Ledger, "set_state")])
def test_an_end_that_cannot_be_noted_is_no_success(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: type, step: str
) -> None:
    note = getattr(table, step)

    def full(owner: object, *words: object, **facts: object) -> None:
        if "done" in words:
            raise sqlite3.OperationalError("database or disk is full")
        note(owner, *words, **facts)

    with monkeypatch.context() as patch, pytest.raises((Resumable, sqlite3.OperationalError)):
        patch.setattr(table, step, full)
        merge(models, RECIPE, tmp_path / "out")
    merge(models, RECIPE, tmp_path / "out")
    (folder,) = RunStore(tmp_path / "out.state").runs()
    with closing(Ledger(folder / LEDGER_FILE, read_only=True)) as ledger:
        assert ledger.run()["state"] == "done"
