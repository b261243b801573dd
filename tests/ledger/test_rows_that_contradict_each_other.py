"""Promise: a ledger of which one row contradicts another is not used, nor is one imported."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import xxhash
from ledger_rows import RUN, SHARD, TIME, UNIT, change

from resumerge.ledger import LEDGER_FILE, Ledger, UnitCommit
from resumerge.ledger.file_names import is_output_name, is_safe_name
from resumerge.ledger.import_ledger import import_ledger
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validators import (
    LARGEST,
    MOST_SECONDS,
    event_data,
    integer,
    like,
    parts_of_fingerprint,
    path,
    seconds,
    shape,
    source_identity,
    text,
    time,
)
from resumerge.ledger.validity import RECIPE_TEXT, InvalidLedger, text_digest

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
IDENTITY = {"model": "base", "kind": "hub", "revision": "a" * 40, "files": {}}
PARTS = json.dumps({"source base": IDENTITY, RECIPE_TEXT: text_digest("")}, sort_keys=True)
SOURCE = {
    **{"number": 0, "model": "base", "kind": "hub", "revision": "a" * 40, "folder": "/base"},
    **{"identity": json.dumps(IDENTITY), "stamps": None},
}
HASHES = bytes(range(32))
DONE = xxhash.xxh3_128_hexdigest(HASHES)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Make a ledger of two shards of two tensors of two blocks, and return its path.

    The first shard is sealed and mirrored; one tensor of the second is committed in part.
    """
    path = tmp_path / LEDGER_FILE
    run = {**RUN, "fingerprint_parts": PARTS}
    run["fingerprint"] = hashlib.sha256(PARTS.encode()).hexdigest()
    unit = {**UNIT, "blocks": 2, "block_elements": 2}
    with closing(Ledger.create(path)) as ledger:
        ledger.begin(
            run,
            [SOURCE],
            [{**SHARD, "number": n, "name": name, "nbytes": 40} for n, name in enumerate(SHARDS)],
            [
                {**unit, "number": n, "name": f"t{n}", "shard": n // 2, "offset": 8 + 16 * (n % 2)}
                for n in range(4)
            ],
        )
        ledger.attempts.start({"pid": 1, "host": "here", "boot_id": None})
        whole = [
            UnitCommit(number=n, hashes=HASHES, input_hashes=bytes(64), checksum=DONE, seconds=0.5)
            for n in range(2)
        ]
        part = UnitCommit(
            number=2, hashes=HASHES[:16], input_hashes=bytes(32), checksum=None, seconds=0.5
        )
        ledger.units.commit_batch(1, 1, [*whole, part], {"bytes_committed": 40})
        ledger.shards.seal(0)
        ledger.set_mirror_url("/mirror")
        ledger.mirrored.record(SHARDS[0], 40, "a" * 64)
        ledger.use_one_file()
    return path


def check(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.check()


CONTRADICTIONS = {
    "units.shard refers to 2": "UPDATE units SET shard = 2 WHERE number = 3",
    "units.attempt refers to 2": "UPDATE units SET attempt = 2 WHERE number = 2",
    "units.offset of 't1'": "UPDATE units SET offset = 25 WHERE number = 1",
    "units.offset of 't2'": "UPDATE units SET offset = 9 WHERE number = 2",
    "units.nbytes of 't3'": "UPDATE units SET nbytes = 15 WHERE number = 3",
    "units.nbytes of 't2'": "UPDATE units SET dtype = 'F8' WHERE number = 2",
    "units.nbytes of 't1'": "UPDATE units SET shape = '[5]' WHERE number = 1",
    "units.blocks of 't3'": "UPDATE units SET blocks = 1 WHERE number = 3",
    "units.blocks of 't2'": "UPDATE units SET block_elements = 4 WHERE number = 2",
    "units.block_hashes of 't3'": "UPDATE units SET committed_blocks = 1 WHERE number = 3",
    "units.block_hashes of 't2'": "UPDATE units SET block_hashes = zeroblob(32) WHERE number = 2",
    "units.block_hashes of 't1'": "UPDATE units SET committed_blocks = 3,"
    " block_hashes = zeroblob(48) WHERE number = 1",
    "units.input_hashes of 't2'": "UPDATE units SET input_hashes = zeroblob(33) WHERE number = 2",
    "units.input_hashes of 't1'": "UPDATE units SET input_hashes = zeroblob(48) WHERE number = 1",
    "units.input_hashes of 't3'": "UPDATE units SET input_hashes = zeroblob(16) WHERE number = 3",
    "units.checksum of 't1'": f"UPDATE units SET checksum = '{'0' * 32}' WHERE number = 1",
    "units.checksum of 't0'": "UPDATE units SET checksum = NULL WHERE number = 0",
    "units.checksum of 't2'": f"UPDATE units SET checksum = '{DONE}' WHERE number = 2",
    "units.state of 't0'": "UPDATE units SET state = 'pending' WHERE number = 0",
    "units.state of 't2'": "UPDATE units SET state = 'committed' WHERE number = 2",
    "'t2' is missing": "UPDATE shards SET state = 'sealed' WHERE number = 1",
    "shards.nbytes of model-00001": "UPDATE shards SET nbytes = 41 WHERE number = 0",
    "shards.nbytes of model-00002": "UPDATE shards SET nbytes = 39 WHERE number = 1",
    "shards.name has": f"UPDATE shards SET name = '{SHARDS[0]}' WHERE number = 1",
    f"shards.name '{SHARDS[0]}, other": "UPDATE shards SET name = 'other.safetensors' "
    "WHERE number = 1",
    f"shards.name '{SHARDS[0]}, model": "UPDATE run SET output = '/out/merged.safetensors'",
    "mirrored.nbytes": "UPDATE mirrored SET nbytes = 39",
    "run.fingerprint does not match": f"UPDATE run SET fingerprint = '{'0' * 64}'",
    "run.config_text": "UPDATE run SET config_text = 'other'",
    "sources.model": "UPDATE sources SET model = 'math'",
    "sources.kind": "UPDATE sources SET kind = 'local'",
    "sources.revision": f"UPDATE sources SET revision = '{'b' * 40}'",
    "sources.identity of 'base' does not match": "UPDATE sources SET identity = "
    f"'{json.dumps({**IDENTITY, 'files': {'f': {}}})}'",
    "sources.identity of 'base' does not": "DELETE FROM sources",
    "table run has 2 rows": "INSERT INTO run SELECT 'two', created, config_path, config_text, "
    "output, fingerprint, fingerprint_parts, options, versions, host, state, mirror FROM run",
    "sources.number are not consecutive": "UPDATE sources SET number = 1",
    "units.number are not consecutive": "UPDATE units SET number = 9 WHERE number = 3",
    "attempts.n are not consecutive": "UPDATE attempts SET n = 2",
}  # fmt: skip


def test_as_it_is_it_is_used(ledger: Path, tmp_path: Path) -> None:
    check(ledger)
    import_ledger(ledger, tmp_path / "imported.db")
    with closing(Ledger(tmp_path / "imported.db")) as imported, closing(Ledger(ledger)) as own:
        assert imported.units.all() == own.units.all() and imported.shards.all() == own.shards.all()
        assert imported.mirrored.files() == own.mirrored.files()
        assert imported.attempts.all() == own.attempts.all()
        assert imported.run()["mirror"] is None


@pytest.mark.parametrize("says", CONTRADICTIONS)
def test_a_contradiction_is_named(ledger: Path, tmp_path: Path, says: str) -> None:
    change(ledger, CONTRADICTIONS[says])
    with pytest.raises(InvalidLedger) as own:
        check(ledger)
    assert says in str(own.value)
    with closing(sqlite3.connect(ledger)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode=DELETE")
    with pytest.raises(InvalidLedger) as imported:
        import_ledger(ledger, tmp_path / "imported.db")
    assert says in str(imported.value)
    assert not (tmp_path / "imported.db").exists()


def test_what_is_mirrored_has_a_mirror(ledger: Path) -> None:
    change(ledger, "UPDATE run SET mirror = NULL")
    with pytest.raises(InvalidLedger, match=r"run\.mirror is missing"):
        check(ledger)


def test_a_file_of_the_mirror_that_is_no_shard_has_any_size(ledger: Path) -> None:
    change(ledger, f"INSERT INTO mirrored VALUES ('config.json', 7, '{'b' * 64}', '{TIME}')")
    check(ledger)


def test_a_ledger_that_is_none_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"SQLite format 3\0" + b"\xa5" * 5000)
    with closing(sqlite3.connect(tmp_path / "empty")) as db:
        db.execute("CREATE TABLE t (a)")
    for name in ("garbage", "empty"):
        with pytest.raises(InvalidLedger):
            import_ledger(tmp_path / name, tmp_path / "imported.db")
    assert not (tmp_path / "imported.db").exists()


ACCEPTED: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "text": (text(3), ["", "abc"], ["abcd", 5, None]),
    "path": (path, ["a" * 4096, ""], ["a" * 4097, "a\0b", None]),
    "like": (like("[a-c]+"), ["abc"], ["abcd", "dabc", "abc\n", "", None]),
    "integer": (integer(1), [1, LARGEST], [0, -1, LARGEST + 1, "1", 1.0, None]),
    "integer from 0": (integer(), [0], [-1]),
    "seconds": (seconds, [0, 0.5, MOST_SECONDS], [-0.1, 2 * MOST_SECONDS, float("nan"), "1"]),
    "time": (time, [TIME, "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00", "yesterday", 5]),
    "shape": (shape, ["[]", "[0, 5]", f"[{LARGEST}]"],
              ["[-1]", "[1.0]", "[true]", f"[{LARGEST + 1}]", "5", "{}", "[" + "1," * 500 + "1]"]),
    "event": (event_data, ["{}", '{"after": 1.5, "models": ["a"]}', '{"seconds": null}'],
              ["[]", '{"after": "1"}', '{"after": true}', '{"damage": []}', '{"before": {}}',
               '{"bytes": "5"}', '{"requests": []}', '{"peak_rss": true}',
               '{"seconds": "5"}', '{"models": "a"}', '{"models": [5]}', "{"]),
    "fingerprint": (parts_of_fingerprint,
                    ["{}", '{"recipe": 5}', '{"source a": {"files": {"f": {}}}}'],
                    ["[]", '{"source a": 5}', '{"source a": {}}', '{"source a": {"files": []}}',
                     '{"source a": {"files": {"f": 5}}}']),
    "identity": (source_identity, ["{}", '{"single": true, "files": {"f": {}}}'],
                 ["[]", '{"files": []}', '{"files": 5}', "{"]),
    "file": (is_safe_name, ["config.json", "a/b/c", "a" * 200, ".hidden"],
             ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", ".", "..", "a\\b", "a\nb", "a\0b",
              "a" * 201, "a/" * 500 + "aa", ".resumerge/lease", ".resumerge", "ä" * 101, 5]),
    "folder": (is_output_name, ["merged", "a b"], ["a/b", ".hidden", "..", "", "/"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_value_is_accepted_to_its_limits_and_not_beyond(name: str) -> None:
    accepts, good, bad = ACCEPTED[name]
    assert [value for value in good if not accepts(value)] == []
    assert [value for value in bad if accepts(value)] == []


def test_what_a_column_may_say_is_what_is_written_there(ledger: Path) -> None:
    states = {
        ("run", "state"): ["planned", "running", "interrupted", "failed", "done"],
        ("shards", "state"): ["open", "sealed"],
        ("units", "state"): ["pending", "committed"],
        ("attempts", "outcome"): ["done", "interrupted", "error", "oom", "killed", None],
        ("sources", "kind"): ["local", "hub", "lora"],
        ("shards", "name"): ["model.safetensors", *SHARDS, "my own (1).safetensors"],
    }
    for (table, name), values in states.items():
        [column] = [column for column in TABLES[table].columns if column.name == name]
        assert all(map(column.accepts, values)), (table, name)
        assert not any(
            map(
                column.accepts,
                ["other", "model.safetensors.partial", "/a.safetensors", "a/b.safetensors", 5],
            )
        )
