"""Promise: verifying counts what it compares, names damage, and records that if it may."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from crashing import Bench, Merge, flip

from resumerge.engine.recovery.verification import Verification
from resumerge.engine.recovery.verify import verify_run
from resumerge.engine.resources.lock import run_lock
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger
from resumerge.storage import Storage


@pytest.fixture
def done(bench: Bench) -> Merge:
    merge = bench.merge()
    assert merge.run().code == 0
    return merge


def verify(merge: Merge) -> Verification:
    (folder,) = merge.runs()
    return verify_run(folder, Storage())


def state(merge: Merge) -> str:
    return str(merge.query("SELECT state FROM run")[0]["state"])


def units(merge: Merge, where: str = "") -> list[dict[str, object]]:
    return merge.query(f"SELECT * FROM units {where} ORDER BY number")


def test_a_whole_output_is_compared_to_the_last_byte(done: Merge) -> None:
    rows, found = units(done), verify(done)
    assert found.intact and found.marked and not found.pending
    assert found.units == len(rows)
    assert found.nbytes == sum(int(str(row["nbytes"])) for row in rows)
    assert state(done) == "done"
    for row in (rows[0], rows[-1]):
        shard = done.query(f"SELECT name FROM shards WHERE number = {row['shard']}")[0]["name"]
        flip(done.out / shard, int(str(row["offset"])) + int(str(row["nbytes"])) - 1)
    found = verify(done)
    assert list(found.damaged) == [rows[0]["name"], rows[-1]["name"]]
    assert found.units == len(rows)
    left = sum(int(str(row["nbytes"])) for row in rows[1:-1])
    assert found.nbytes == left


def test_what_is_found_is_pending_and_stays_found(done: Merge) -> None:
    rows = units(done)
    flip(done.out / "model-00001-of-00004.safetensors", int(str(rows[0]["offset"])))
    found = verify(done)
    assert found.damaged == {rows[0]["name"]: "block 0 differs in model-00001-of-00004.safetensors"}
    assert state(done) == "interrupted"
    assert [row["number"] for row in units(done, "WHERE state = 'pending'")] == [0]
    assert "verify_found_damage" in done.events()
    again = verify(done)
    assert again.damaged == {rows[0]["name"]: "damaged in an earlier check"}
    assert (again.units, again.pending) == (len(rows) - 1, 0)


def test_of_a_shard_with_another_head_or_none_all_is_damaged(done: Merge) -> None:
    names = [str(row["name"]) for row in units(done)]
    of_shards = [
        [str(row["name"]) for row in units(done, f"WHERE shard = {shard}")] for shard in (0, 1)
    ]
    flip(done.out / "model-00001-of-00004.safetensors", 20)
    (done.out / "model-00002-of-00004.safetensors").unlink()
    found = verify(done)
    assert list(found.damaged) == of_shards[0] + of_shards[1]
    assert {found.damaged[name] for name in of_shards[0]} == {
        "the header of model-00001-of-00004.safetensors differs"
    }
    assert {found.damaged[name] for name in of_shards[1]} == {
        "model-00002-of-00004.safetensors is missing"
    }
    assert found.units == len(names)


def test_a_file_beside_the_shards_counts_but_for_the_model_card(done: Merge) -> None:
    (done.out / "README.md").write_text("mine")
    assert verify(done).intact
    (done.out / "config.json").unlink()
    assert verify(done).damaged == {"config.json": "the file differs or is missing"}
    assert state(done) == "interrupted"
    assert units(done, "WHERE state = 'pending'") == []


def test_while_another_process_works_nothing_is_noted(done: Merge) -> None:
    flip(done.out / "model-00001-of-00004.safetensors", int(str(units(done)[0]["offset"])))
    (folder,) = done.runs()
    with run_lock(folder, folder.name):
        found = verify(done)
    assert found.damaged and not found.marked
    assert state(done) == "done"
    assert units(done, "WHERE state = 'pending'") == []


@pytest.mark.parametrize("data", [b"damaged", None])
def test_while_another_process_works_a_snapshot_is_as_good(done: Merge, data: bytes | None) -> None:
    (folder,) = done.runs()
    (folder / LEDGER_FILE).unlink()
    if data is not None:
        (folder / LEDGER_FILE).write_bytes(data)
    with run_lock(folder, folder.name):
        assert verify(done).intact
        assert not (folder / "ledger.damaged.db").exists()
    assert verify(done).intact
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        assert ledger.events.all("ledger_restored")
    assert (folder / SNAPSHOT_FILE).exists()


def test_what_is_not_committed_yet_is_pending_and_no_damage(
    bench: Bench, operations: int, tmp_path: Path
) -> None:
    merge = bench.merge()
    merge.run(operations // 2)
    committed = units(merge, "WHERE committed_blocks > 0")
    found = verify(merge)
    assert found.intact and found.pending > 0
    assert found.units == len(committed)
    assert found.units + found.pending == len(units(merge))
    before = state(merge)
    assert state(merge) == before != "done"
