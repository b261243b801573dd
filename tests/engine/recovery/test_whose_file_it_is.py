"""Promise: a file is the run's own where its size and head say so, and a link is a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from crashing import Bench, Merge

from resumerge.engine.recovery.backup import rename_to_backup
from resumerge.engine.recovery.ownership import written_files
from resumerge.engine.resources.lock import UNLOCKED_SECONDS, run_lock
from resumerge.storage import Storage

MINE = b"mine"
SHARD = "model-00002-of-00004.safetensors"


@pytest.fixture
def done(bench: Bench) -> Merge:
    merge = bench.merge()
    assert merge.run().code == 0
    return merge


@pytest.fixture
def halfway(bench: Bench, operations: int) -> Merge:
    merge = bench.merge()
    merge.run(operations // 2)
    return merge


def owned(merge: Merge) -> set[str]:
    ledger = merge.ledger()
    try:
        return written_files(ledger, merge.out)
    finally:
        ledger.close()


def longer(data: bytes) -> bytes:
    return data + b"\0"


def shorter(data: bytes) -> bytes:
    return data[:-1]


def another_head(data: bytes) -> bytes:
    return data[:20] + b"?" + data[21:]


@pytest.mark.parametrize("edit", [longer, shorter, another_head])
def test_a_shard_of_another_size_or_head_is_somebody_elses(done: Merge, edit: object) -> None:
    """The user may have a model with the same tensors, and with more or fewer of them."""
    assert callable(edit)
    assert SHARD in owned(done)
    data = edit((done.out / SHARD).read_bytes())
    (done.out / SHARD).write_bytes(data)
    assert owned(done) == set(done.files()) - {SHARD}
    refused = done.run(restart=True)
    assert refused.code == 2
    assert SHARD in refused.stderr
    assert (done.out / SHARD).read_bytes() == data


def test_a_file_of_the_same_size_beside_the_shards_is_not_ours_unless_it_is_the_same(
    done: Merge,
) -> None:
    data = (done.out / "config.json").read_bytes()
    (done.out / "config.json").write_bytes(data[:-2] + b" }")
    assert owned(done) == set(done.files()) - {"config.json"}


def test_a_folder_is_never_ours(done: Merge) -> None:
    for name in (SHARD, "config.json"):
        (done.out / name).unlink()
        (done.out / name).mkdir()
    (done.out / f"{SHARD}.partial").mkdir()
    assert owned(done) == set(done.files())


def test_a_name_of_which_a_link_leads_nowhere_is_taken(tmp_path: Path) -> None:
    """Renaming over the link would lose it."""
    (tmp_path / "config.json").write_bytes(MINE)
    (tmp_path / "config.json.kept").symlink_to("nowhere")
    found = rename_to_backup(tmp_path / "config.json", Storage())
    assert found == tmp_path / "config.json.kept2"
    assert found.read_bytes() == MINE
    assert (tmp_path / "config.json.kept").readlink() == Path("nowhere")


@pytest.mark.parametrize("name", ["config.json", "1_Pooling/config.json"])
def test_a_link_that_leads_nowhere_is_set_aside(
    halfway: Merge, reference: dict[str, bytes], name: str
) -> None:
    (halfway.out / name).parent.mkdir(exist_ok=True)
    (halfway.out / name).symlink_to("nowhere")
    (halfway.out / f"{name}.kept").symlink_to("elsewhere")
    halfway.finish()
    assert halfway.files() == reference
    assert (halfway.out / f"{name}.kept").readlink() == Path("elsewhere")
    assert (halfway.out / f"{name}.kept2").readlink() == Path("nowhere")


def test_a_model_card_that_is_a_link_to_nowhere_stays(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    (halfway.out / "README.md").symlink_to("nowhere")
    halfway.finish()
    assert (halfway.out / "README.md").readlink() == Path("nowhere")
    assert halfway.files() == {n: data for n, data in reference.items() if n != "README.md"}


def test_a_shard_s_name_that_is_a_link_to_nowhere_is_set_aside(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    [shard] = halfway.query("SELECT * FROM shards ORDER BY number DESC LIMIT 1")
    assert shard["state"] == "open" and not (halfway.out / shard["name"]).exists()
    (halfway.out / shard["name"]).symlink_to("nowhere")
    halfway.finish()
    assert halfway.files() == reference
    assert (halfway.out / f"{shard['name']}.kept").readlink() == Path("nowhere")


def staged(merge: Merge, name: str, age: float, *files: str) -> Path:
    """Make a folder of a run whose creation began so many seconds ago."""
    folder = merge.state / f"{name}.new"
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).write_bytes(b"")
    then = time.time() - age
    os.utime(folder, (then, then))
    return folder


def test_a_folder_that_was_just_made_is_not_abandoned(bench: Bench) -> None:
    """Another process may be about to lock the folder."""
    merge = bench.merge()
    fresh = staged(merge, "fresh", 1)
    nearly = staged(merge, "nearly", UNLOCKED_SECONDS / 2)
    old = staged(merge, "old", 2 * UNLOCKED_SECONDS)
    dead = staged(merge, "dead", 1, "lock", "ledger.db")
    alive = staged(merge, "alive", 2 * UNLOCKED_SECONDS)
    with run_lock(alive, "alive"):
        assert merge.run().code == 0
        assert fresh.exists() and nearly.exists() and alive.exists()
        assert not old.exists() and not dead.exists()
    assert len(merge.runs()) == 1
