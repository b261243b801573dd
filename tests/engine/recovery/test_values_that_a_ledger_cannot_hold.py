"""Promise: a ledger with a changed value is restored or refused, or gives the same model."""

from __future__ import annotations

import errno
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import change, query
from merging import merge, working_in
from tiny_models import LLAMA, write_family

from resumerge.documents.history import history_of
from resumerge.documents.status import status_json
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.verify import verify_run
from resumerge.errors import InputError, Resumable, ResumergeError
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger, Sample, take_snapshot
from resumerge.ledger.run_store import RunStore
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validators import LARGEST, MOST_SECONDS
from resumerge.options import Options
from resumerge.storage import Storage
from resumerge.ui.html.page import page
from resumerge.ui.text.narrative import narrative_of

RECIPE = """\
# a comment of the user's
merge_method: linear
models:
  - {model: math, parameters: {weight: 1}}
  - {model: code, parameters: {weight: 1}}
"""
SHARD_SIZE = 8000
CANNOT_BE = [None, -1, "x", b"\xff\xfe"]


class FullDisk(Storage):
    """A disk with space for some writes."""

    def __init__(self, writes: int) -> None:
        self._left = writes

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, data, offset)


class Place:
    """A folder with a run, which every test finds as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.state = folder, folder / "out", folder / "state"
        self.config = folder / "out.yaml"
        self.kept = folder / "kept"

    @property
    def run(self) -> Path:
        (found,) = RunStore(self.state).runs()
        return found

    @property
    def ledger(self) -> Path:
        return self.run / LEDGER_FILE

    def keep(self) -> None:
        with closing(Ledger(self.ledger)) as ledger:
            ledger.events.add("batch_lowered", reason="memory")
            ledger.downloads.record("/nowhere", "org/name", "model.safetensors", 5, 6)
            ledger.companions.record("README.md", 5, "0" * 32)
            ledger.steps.record("1" * 32, 1, "2" * 32)
            sample = Sample(rss=5, available=5, budget=5, batch_bytes=5, bytes_done=5)
            ledger.units.commit_batch(1, 9, [], {"bytes_committed": 5}, sample)
            take_snapshot(ledger, Storage())
            ledger.use_one_file()
        self.kept.mkdir()
        for path in (self.out, self.state):
            shutil.copytree(path, self.kept / path.name)

    def restore(self, *, snapshot: bool = False) -> None:
        for path in (self.out, self.state):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.kept / path.name, path)
        if not snapshot:
            (self.run / SNAPSHOT_FILE).unlink()

    def resume(self) -> None:
        with working_in(self.folder):
            Session(Options(state_dir=self.state)).resume(str(self.out))

    def show(self) -> dict[str, Any]:
        """Return everything that status shows, for terminals and for browsers."""
        [run] = status_json(RunStore(self.state), None)["runs"]
        narrative_of(run, history_of(run))
        page(run)
        return dict(run)


def alter(ledger: Path, sql: str) -> None:
    """Execute statements without the view, which would make some of them invalid."""
    with closing(sqlite3.connect(ledger)) as db:
        db.executescript(f"DROP VIEW IF EXISTS progress; {sql}")


def output(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(workplace: Path) -> Path:
    """Write models, and merge them to `whole/out` without an interruption."""
    folder = workplace / "values"
    write_family(folder, {**LLAMA, "num_hidden_layers": 1})
    (folder / "whole").mkdir()
    merge(folder, RECIPE, folder / "whole/out", shard_size=SHARD_SIZE)
    return folder


def make(whole: Path, name: str, storage: Storage) -> Place:
    folder = whole / name
    folder.mkdir()
    for model in ("base", "math", "code"):
        (folder / model).symlink_to(whole / model)
    place = Place(folder)
    place.config.write_text(RECIPE)
    options = Options(state_dir=place.state, shard_size=SHARD_SIZE)
    with working_in(folder):
        Session(options, storage=storage).run(place.config, place.out)
    return place


@pytest.fixture(scope="module")
def stopped(whole: Path) -> Place:
    """Make a run that a full disk stopped."""
    with pytest.raises(Resumable):
        make(whole, "stopped", FullDisk(12))
    place = Place(whole / "stopped")
    place.keep()
    return place


@pytest.fixture(scope="module")
def done(whole: Path) -> Place:
    """Make a run that is done."""
    place = make(whole, "done", Storage())
    place.keep()
    return place


def similar(value: Any) -> list[Any]:
    """Return other values of the same kind."""
    if isinstance(value, str):
        digit = re.sub(r"\d(?=\D*$)", lambda found: str((int(found[0]) + 1) % 10), value)
        return [digit, value + " "]
    if isinstance(value, bytes):
        return [bytes([value[0] ^ 1]) + value[1:]]
    return [value + 1] if isinstance(value, (int, float)) else []


@pytest.mark.parametrize("table", TABLES)
def test_every_value_of_every_column(stopped: Place, whole: Path, table: str, soak: bool) -> None:
    """Each column gets one impossible value in turn, and one of its kind; with --soak all."""
    reference = output(whole / "whole/out")
    stopped.restore()
    rows = query(stopped.ledger, f"SELECT rowid AS at, * FROM {table} ORDER BY 1")
    assert rows or table == "mirrored"
    for number, name in enumerate(column.name for column in TABLES[table].columns if rows):
        value = rows[-1][name]
        wrong, kind = CANNOT_BE, similar(value)
        if not soak:
            wrong, kind = [wrong[number % len(wrong)]], kind[:1]
        for other in [*wrong, *kind]:
            stopped.restore()
            sql = f'UPDATE {table} SET "{name}" = ? WHERE rowid = ?'
            with suppress(sqlite3.IntegrityError):  # a primary key of another type
                change(stopped.ledger, sql, [other, rows[-1]["at"]])
            what = f"{table}.{name}: {value!r} -> {other!r}"
            assert stopped.show()["id"] is not None, what
            try:
                verify_run(stopped.run, Storage())
                stopped.resume()
            except ResumergeError as error:
                assert error.exit_code in (2, 75), what
            else:
                found = output(stopped.out)
                if name in ("input_hashes", "content"):  # the card names contents by them
                    found["README.md"] = reference["README.md"]
                assert found == reference or name == "output", what


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("run.options", "5"),
        ("run.config_text", RECIPE.replace("user", "stranger")),
        ("run.fingerprint_parts", "{}"),
        ("sources.identity", "[]"),
        ("shards.nbytes", 5),
        ("units.shape", "{}"),
        ("units.blocks", 7),
        ("units.offset", 9),
        ("units.number", 99),
        ("attempts.started", "yesterday"),
        ("events.data", "5"),
        ("events.data", '{"after": "much", "damage": []}'),
        ("sources.stamps", "[]"),
    ],
)
def test_the_snapshot_is_used_and_otherwise_the_column_is_named(
    stopped: Place, done: Place, whole: Path, column: str, value: Any
) -> None:
    table, name = column.split(".")
    sql = f'UPDATE {table} SET "{name}" = ? WHERE rowid = (SELECT max(rowid) FROM {table})'
    for place in (stopped, done):
        place.restore(snapshot=True)
        change(place.ledger, sql, [value])
        place.resume()
        kinds = [row["kind"] for row in query(place.ledger, "SELECT kind FROM events")]
        assert "ledger_restored" in kinds
        assert output(place.out) == output(whole / "whole/out")
        place.restore()
        change(place.ledger, sql, [value])
        before = output(place.out)
        for command in (place.resume, lambda: verify_run(place.run, Storage())):  # noqa: B023
            with pytest.raises(InputError, match=rf"{table}\.{name}"):
                command()
        assert output(place.out) == before
        assert place.show()["id"] is not None


def test_status_still_shows_the_others(stopped: Place) -> None:
    stopped.restore()
    found = stopped.run
    other = shutil.copytree(found, found.with_name("other"))
    change(other / LEDGER_FILE, "UPDATE attempts SET started = 5")
    runs = {run["id"]: run for run in status_json(RunStore(stopped.state), None)["runs"]}
    assert runs["other"]["state"] == "failed"
    [event] = runs["other"]["events"]
    assert "attempts.started" in event["data"]["why"]
    assert runs[found.name]["state"] == "interrupted"


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("DELETE FROM units WHERE number = 0", "units.number"),
        ("DELETE FROM units WHERE number = (SELECT max(number) FROM units)", "shards.nbytes"),
        ("DELETE FROM shards WHERE number = 0", "shards.number"),
        ("DELETE FROM run", "table run"),
        ("DROP TABLE units", "shards.nbytes"),
        (
            "DELETE FROM units WHERE shard = (SELECT max(number) FROM shards);"
            "DELETE FROM shards WHERE number = (SELECT max(number) FROM shards)",
            "shards or tensors that differ",
        ),
    ],
)
def test_rows_that_are_missing(stopped: Place, sql: str, named: str) -> None:
    stopped.restore()
    alter(stopped.ledger, sql)
    with pytest.raises(InputError, match=named), working_in(stopped.folder):
        Session(Options(state_dir=stopped.state)).resume(stopped.run.name)
    assert stopped.show()["id"] is not None


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("CREATE TRIGGER t AFTER UPDATE ON run BEGIN SELECT RAISE(ABORT, 'no'); END", "trigger"),
        ("CREATE UNIQUE INDEX i ON samples (id)", "index 'i'"),
        ("ALTER TABLE attempts DROP COLUMN outcome; ALTER TABLE attempts DROP COLUMN started",
         r"attempts\.started is missing"),
        ("ALTER TABLE samples ADD COLUMN n INTEGER NOT NULL DEFAULT 5", "table 'samples'"),
    ],
)  # fmt: skip
def test_a_schema_of_another(
    stopped: Place, done: Place, whole: Path, sql: str, named: str
) -> None:
    for place in (stopped, done):
        place.restore(snapshot=True)
        alter(place.ledger, sql)
        assert place.show()["events"][-1]["kind"] != "ledger_damaged"
        place.resume()
        kinds = [row["kind"] for row in query(place.ledger, "SELECT kind FROM events")]
        assert "ledger_restored" in kinds
        assert output(place.out) == output(whole / "whole/out")
        place.restore()
        alter(place.ledger, sql)
        before = place.ledger.read_bytes()
        for command in (
            lambda: Session(Options(state_dir=place.state)).resume(place.run.name),  # noqa: B023
            lambda: verify_run(place.run, Storage()),  # noqa: B023
        ):
            with pytest.raises(InputError, match=named):
                command()
        assert place.ledger.read_bytes() == before
        [event] = place.show()["events"]
        assert re.search(named, event["data"]["why"])


def test_columns_that_can_be_null_may_be_missing(stopped: Place, whole: Path) -> None:
    """The ledger may be an older one, or another program's."""
    for name, table in TABLES.items():
        gone = [c.name for c in table.columns if c.accepts(None) and name != "units"]
        if not gone:
            continue
        stopped.restore()
        alter(stopped.ledger, "".join(f"ALTER TABLE {name} DROP COLUMN {c};" for c in gone))
        assert stopped.show()["id"] is not None
        assert "ledger_damaged" not in [event["kind"] for event in stopped.show()["events"]]
        try:
            verify_run(stopped.run, Storage())
            stopped.resume()
        except InputError as error:
            assert gone == ["revision", "stamps", "content"], error
        else:
            assert output(stopped.out).keys() == output(whole / "whole/out").keys()


@pytest.mark.parametrize("table", TABLES)
def test_what_is_accepted_is_still_accepted_after_the_next_attempt(
    stopped: Place, table: str
) -> None:
    """Counts and sums are computed from the values: they have to stay below the limits too."""
    for column in TABLES[table].columns:
        if column.type not in (int, float):
            continue
        limit = LARGEST if column.type is int else MOST_SECONDS
        for value in (limit, 2**53, 2**31 - 1):
            if not column.accepts(value):
                continue
            stopped.restore()
            change(stopped.ledger, f'UPDATE {table} SET "{column.name}" = ? WHERE rowid = '
                   f"(SELECT max(rowid) FROM {table})", [value])  # fmt: skip
            with suppress(InputError):
                stopped.resume()
                with closing(Ledger(stopped.ledger)) as ledger:
                    ledger.check()
                    ledger.samples.groups(5)


def test_what_is_mirrored_has_a_mirror(stopped: Place) -> None:
    stopped.restore()
    with closing(Ledger(stopped.ledger)) as ledger:
        ledger.mirrored.record("config.json", 5, "0" * 64)
    with pytest.raises(InputError, match=r"run\.mirror"):
        verify_run(stopped.run, Storage())
