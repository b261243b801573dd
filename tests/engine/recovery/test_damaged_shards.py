"""Promise: units that are damaged or gone are computed again, and no others are."""

from __future__ import annotations

import pytest
from crashing import Bench, Merge, flip
from ledger_rows import change


@pytest.fixture
def halfway(bench: Bench, operations: int) -> Merge:
    """Kill a merge with the first shard sealed, the second committed in part, the rest untouched.

    The operation depends on how far computing is ahead of committing.
    """
    for at in range(operations // 2, 0, -1):
        merge = bench.merge()
        merge.run(at)
        if is_halfway(merge):
            return merge
    raise AssertionError("no such operation")


def is_halfway(merge: Merge) -> bool:
    if [s["state"] for s in shards(merge)][:2] != ["sealed", "open"]:
        return False
    [units] = merge.query(
        "SELECT count(checksum) AS committed, count(*) AS whole FROM units WHERE shard = 1"
    )
    in_part = 0 < units["committed"] < units["whole"]
    return in_part and (merge.out / f"{shards(merge)[1]['name']}.partial").exists()


def shards(merge: Merge) -> list[dict[str, object]]:
    return merge.query("SELECT * FROM shards ORDER BY number")


def computed_again(
    merge: Merge, before: list[dict[str, object]], column: str = "shard"
) -> set[object]:
    """Return the shards, or numbers, of committed units that the last attempt computed again."""
    last = merge.query("SELECT max(n) AS n FROM attempts")[0]["n"]
    now = {row["number"]: row for row in merge.query("SELECT * FROM units")}
    return {
        row[column] for row in before if row["checksum"] and now[row["number"]]["attempt"] == last
    }


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("damage", ["missing", "short", "another header", "empty", "longer"])
def test_a_shard_that_is_lost_is_computed_again(
    halfway: Merge, reference: dict[str, bytes], number: int, damage: str
) -> None:
    before = halfway.query("SELECT * FROM units")
    name = shards(halfway)[number]["name"] + ("" if number == 0 else ".partial")
    path = halfway.out / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "short": data[:-1],
                "another header": data[:20] + b"?" + data[21:],
                "empty": b"",
                "longer": data + b"\0",
            }[damage]
        )
    ended = halfway.resume(no_recheck=True)  # which would mend what was left of it
    assert ended.code == 0, ended.stderr
    halfway.assert_done(reference)
    assert halfway.events().count("shard_lost") == 1
    assert computed_again(halfway, before) == {number}


def test_renamed_but_the_ledger_says_open(halfway: Merge, reference: dict[str, bytes]) -> None:
    [folder] = halfway.runs()
    change(folder / "ledger.db", "UPDATE shards SET state = 'open', sealed_at = NULL")
    before = halfway.query("SELECT * FROM units")
    halfway.finish()
    halfway.assert_done(reference)
    assert "shard_found_whole" in halfway.events()
    assert computed_again(halfway, before) == set()


def test_renamed_but_damaged_and_the_ledger_says_open(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    [folder] = halfway.runs()
    change(folder / "ledger.db", "UPDATE shards SET state = 'open', sealed_at = NULL")
    flip(halfway.out / str(shards(halfway)[0]["name"]), 4999)
    halfway.finish()
    halfway.assert_done(reference)
    assert "checksum_mismatch" in halfway.events()
    assert "shard_found_whole" not in halfway.events()


def test_renamed_but_not_whole_and_the_ledger_says_open(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    """Somebody has renamed the partial file by hand."""
    path = halfway.out / (str(shards(halfway)[1]["name"]) + ".partial")
    path.rename(path.with_suffix(""))
    halfway.finish()
    halfway.assert_done(reference)


def test_a_flipped_byte_of_the_last_batch_is_found(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    unit = halfway.query(
        "SELECT * FROM units WHERE shard = 1 AND committed_blocks ORDER BY batch DESC LIMIT 1"
    )[0]
    flip(halfway.out / (str(shards(halfway)[1]["name"]) + ".partial"), unit["offset"])
    halfway.finish()
    halfway.assert_done(reference)
    assert "checksum_mismatch" in halfway.events()


@pytest.mark.parametrize("done", [False, True])
def test_verify_finds_a_flipped_byte_and_resume_repairs_it(
    halfway: Merge, reference: dict[str, bytes], done: bool
) -> None:
    if done:
        halfway.finish()
    unit = halfway.query("SELECT * FROM units WHERE shard = 0 AND checksum IS NOT NULL")[0]
    flip(halfway.out / str(shards(halfway)[0]["name"]), unit["offset"] + 3)
    before = halfway.query("SELECT * FROM units")
    verified = halfway.verify()
    assert verified.code == 75
    assert unit["name"] in verified.stderr
    halfway.finish()
    halfway.assert_done(reference)
    assert computed_again(halfway, before) == {0}
    assert computed_again(halfway, before, "number") == {unit["number"]}


@pytest.mark.parametrize(
    "name", ["model-00002-of-00004.safetensors", "config.json", "1_Pooling/config.json"]
)
def test_a_file_of_a_finished_model_that_is_gone_is_made_again(
    halfway: Merge, reference: dict[str, bytes], name: str
) -> None:
    halfway.finish()
    before = halfway.query("SELECT * FROM units")
    (halfway.out / name).unlink()
    halfway.finish()
    halfway.assert_done(reference)
    assert computed_again(halfway, before) == ({1} if name.startswith("model") else set())


def test_the_whole_output_is_gone(halfway: Merge, reference: dict[str, bytes]) -> None:
    for path in halfway.out.iterdir():
        path.unlink()
    halfway.out.rmdir()
    halfway.finish()
    halfway.assert_done(reference)


def test_a_finished_run_says_so(halfway: Merge, reference: dict[str, bytes]) -> None:
    halfway.finish()
    stamps = {path: path.stat().st_mtime_ns for path in halfway.out.iterdir()}
    for again in (halfway.resume(), halfway.run()):
        assert again.code == 0
        assert "already done" in again.stderr
        assert not again.written
    assert stamps == {path: path.stat().st_mtime_ns for path in halfway.out.iterdir()}
    halfway.assert_done(reference)
