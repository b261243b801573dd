"""Promise: a mirror that anybody may have written is refused or skipped where it is not fit, and
nothing of it is written outside of the folders that the user named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import xxhash
from made_up_mirrors import put, put_bytes, resume
from merging import working_in

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Resumable
from resumerge.ledger.file_names import is_safe_name
from resumerge.mirror.state import DAMAGED, UNFINISHED, read_state
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_an_honest_one_goes_on(made: Path, there: Path) -> None:
    put(made, there)
    resume(made, there)
    assert (there / "config.json").read_bytes() == (made / "merged/config.json").read_bytes()


UNFIT = {
    "a shard outside": "UPDATE shards SET name = '../evil.safetensors' WHERE number = 0",
    "a shard at the root": "UPDATE shards SET name = '/tmp/evil.safetensors' WHERE number = 0",
    "a mirrored file outside": "UPDATE mirrored SET name = '../../evil' WHERE rowid = 1",
    "a mirrored file at the root": "UPDATE mirrored SET name = '/etc/passwd' WHERE rowid = 1",
    "a run outside": "UPDATE run SET id = '../../evil'",
    "a run that is the folder above": "UPDATE run SET id = '..'",
    "a revision outside": "UPDATE sources SET kind = 'hub', revision = '../../../evil'",
    "a size below zero": "UPDATE shards SET nbytes = -1",
    "a size that is text": "UPDATE units SET nbytes = 'much'",
    "a size beyond reason": "UPDATE units SET nbytes = 9223372036854775807 WHERE number = 1",
    "a tensor outside of its shard": 'UPDATE units SET "offset" = 1000000000000 WHERE number = 1',
    "a tensor of no shard": "UPDATE units SET shard = 77 WHERE number = 1",
    "a block of nothing": "UPDATE units SET block_elements = 0",
    "bytes that are no text": "UPDATE units SET name = CAST(x'ff41' AS TEXT) WHERE number = 1",
    "hashes of another length": "UPDATE units SET block_hashes = x'00' WHERE number = 1",
    "a checksum of something else": f"UPDATE units SET checksum = '{'0' * 32}' WHERE number = 1",
    "more blocks than there are": "UPDATE units SET committed_blocks = 5 WHERE number = 1",
    "a sealed shard with a hole": "UPDATE units SET committed_blocks = 0, block_hashes = NULL,"
    " checksum = NULL, state = 'pending' WHERE number = 1",
    "another fingerprint": f"UPDATE run SET fingerprint = '{'0' * 64}'",
    "options that are none": "UPDATE run SET options = '[]'",
    "an option of another type": """UPDATE run SET options = '{"seed": "x", "shard_size": 8000}'""",
    "an event that is no JSON": "INSERT INTO events VALUES (99, '2026-01-01T00:00:00+00:00', 1,"
    " 'stopped', '{')",
    "a time that is none": "UPDATE attempts SET started = 'yesterday'",
    "two runs": "INSERT INTO run SELECT id || 'x', created, config_path, config_text, output,"
    " fingerprint, fingerprint_parts, options, versions, host, state, mirror FROM run",
    "no run": "DELETE FROM run",
    "no table": "DROP TABLE mirrored",
    "a trigger": "CREATE TRIGGER evil AFTER UPDATE ON run BEGIN DELETE FROM units; END",
    "a view": "ALTER TABLE events RENAME TO other; CREATE VIEW events AS SELECT * FROM other",
    "a column that computes": "ALTER TABLE run ADD COLUMN x AS (length(id))",
    "a check that computes": "CREATE TABLE evil (a TEXT CHECK (length(a) > 5))",
    "an index that computes": "CREATE INDEX evil ON units (length(name))",
    "another program's": "DROP TABLE units; DROP TABLE run",
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_ledgers_are_refused(made: Path, there: Path, name: str) -> None:
    put(made, there, UNFIT[name])
    before, mirrored = tree(there.parent), tree(there)
    with pytest.raises(InputError, match="whose ledger cannot be used") as refused:
        resume(made, there)
    assert "ledger-000001" in str(refused.value)
    new = tree(there.parent) - before
    assert not {path for path in new if not path.startswith("work")} - {"state"}, new
    assert {Path(path).name for path in new if "/" in path} <= {"base", "math", "code"}
    assert tree(there) == mirrored


@pytest.mark.parametrize("data", [b"", b"\0" * 5000, b"SQLite format 3\0" + b"x" * 5000])
def test_files_that_are_no_database(made: Path, there: Path, data: bytes) -> None:
    put_bytes(there, data)
    with pytest.raises(InputError, match="cannot be used"):
        resume(made, there)


def test_a_newer_one_that_is_cut_short_is_skipped(made: Path, there: Path) -> None:
    good = put(made, there)
    newer = put(made, there, "UPDATE run SET host = 'newer'", number=2)
    newer.write_bytes(newer.read_bytes()[:-100])
    put(made, there, UNFIT["a run outside"], number=3)
    changed = put(made, there, "UPDATE run SET host = 'newest'", number=4)
    changed.write_bytes(changed.read_bytes().replace(b"newest", b"latest"))
    held = read_state(open_store(str(there)), there.parent / "copy.db")
    assert held.kind == UNFINISHED
    assert held.snapshot == f".resumerge/{good.name}"
    assert len(held.skipped) == 3
    work = resume(made, there)
    assert not (work / "merged" / "config.json").exists()
    assert (there / "config.json").exists()


def test_one_that_is_too_large_is_not_even_read(made: Path, there: Path) -> None:
    name = f"ledger-000001-000009-{'0' * 32}.db"
    with (there / ".resumerge" / name).open("wb") as file:
        file.truncate(1 << 40)
    held = read_state(open_store(str(there)), there.parent / "copy.db")
    assert held.kind == DAMAGED
    assert "larger than" in held.skipped[0]


def test_a_path_of_the_other_machine_is_not_used(made: Path, there: Path) -> None:
    put(made, there, "UPDATE run SET output = '/tmp/evil place', config_path = '/etc/hostname'")
    work = resume(made, there)
    assert (work / "evil place").is_dir()


@pytest.mark.parametrize("output", ["/", "/a/..", "", ".", "/a/.ssh", "a\nb"])
def test_an_output_without_a_name(made: Path, there: Path, output: str) -> None:
    put(made, there, lambda db: db.execute("UPDATE run SET output = ?", [output]))
    with pytest.raises(InputError, match="--output OUT"):
        resume(made, there)
    resume(made, there, output=there.parent / "named")
    assert (there / "config.json").exists()


def test_a_ledger_that_fits_itself_and_not_its_recipe_is_refused(made: Path, there: Path) -> None:
    put(made, there, "UPDATE units SET name = name || 's' WHERE number = 0")
    with pytest.raises(InputError, match="The ledger does not match its recipe"):
        resume(made, there)


def test_a_recipe_that_is_not_the_one_that_it_began_with_is_refused(
    made: Path, there: Path
) -> None:
    put(made, there, "UPDATE run SET config_text = config_text || '\ndtype: bfloat16'")
    with pytest.raises(InputError, match=r"run\.config_text does not match"):
        resume(made, there)


def test_a_source_that_is_not_here_can_be_brought_and_the_run_goes_on(
    made: Path, there: Path
) -> None:
    """The other machine had the source elsewhere; here its name in the recipe is looked up."""
    put(made, there, "UPDATE sources SET folder = '/nowhere/at/all'")
    work = there.parent / "work"
    work.mkdir()
    with working_in(work), pytest.raises((Resumable, InputError)):
        Session(Options(state_dir=there.parent / "state")).resume(str(there))
    resume(made, there)
    assert (there / "config.json").exists()


TIME = "2026-01-01T00:00:00+00:00"
ATTEMPT = {"n": 1, "pid": 5, "host": "h", "started": TIME, "last_seen": TIME, "units_committed": 1}
SAID = {"run": "r", "fingerprint": "0", "seed": 0, "shard_size": 1, "units": 1, "created": TIME,
        "attempts": [ATTEMPT], "files": {}}  # fmt: skip


@pytest.mark.parametrize(
    "done",
    [
        {"files": {"../evil": {"bytes": 1, "sha256": "0" * 64}}},
        {"files": {"/etc/passwd": {"bytes": 1, "sha256": "0" * 64}}},
        {"run": "../evil", "files": {}},
        {"run": 5, "files": {}},
        {"files": []},
        {"files": {"a": {"bytes": -1, "sha256": "0" * 64}}},
        {"units": -1},
        {"created": "yesterday"},
        {"attempts": {"n": 1}},
        {"attempts": [5]},
        {"attempts": [{"n": 1}]},
        {"attempts": [{**ATTEMPT, "started": 5}]},
        {"attempts": [{**ATTEMPT, "host": []}]},
        {"attempts": [{**ATTEMPT, "ended": {}}]},
    ],
)
def test_a_word_that_it_is_done_which_cannot_be(there: Path, done: dict[str, Any]) -> None:
    def is_taken(change: dict[str, Any]) -> bool:
        said = {**SAID, **change}
        checksum = xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())
        (there / ".resumerge/done.json").write_text(json.dumps({**said, "checksum": checksum}))
        return read_state(open_store(str(there)), there.parent / "copy.db").manifest is not None

    assert is_taken({})
    [run] = resumerge.status(there, state_dir=there.parent / "none")["runs"]
    assert [attempt["ended"] for attempt in run["attempts"]] == [TIME], "when it was last seen"
    assert not is_taken(done)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("model.safetensors", True),
        ("1_Pooling/config.json", True),
        ("../x", False),
        ("a/../../x", False),
        ("/x", False),
        ("a//b", False),
        ("a\\..\\b", False),
        (".resumerge/done.json", False),
        ("a\0b", False),
        ("\udcff", False),
        ("x" * 300, False),
        ("", False),
        (".", False),
        (7, False),
    ],
)
def test_names(name: object, safe: bool) -> None:
    assert is_safe_name(name) is safe
