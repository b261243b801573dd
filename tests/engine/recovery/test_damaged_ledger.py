"""Promise: a damaged ledger comes back from its snapshot and is compared with the shards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crashing import Bench, Merge

from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE


def garbage(path: Path) -> None:
    path.write_bytes(b"\xa5" * 50_000)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9000])


def first_page(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def hole(path: Path) -> None:
    """Fill the pages of the tables with zeros, as a crash of a careless filesystem does."""
    data = path.read_bytes()
    path.write_bytes(data[:8192] + bytes(len(data) - 8192))


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = [garbage, truncate, first_page, empty, hole, remove]


@pytest.fixture
def halfway(bench: Bench, operations: int) -> Merge:
    merge = bench.merge()
    merge.run(operations * 3 // 5)
    return merge


def write_ahead_log_is_gone(folder: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / (LEDGER_FILE + suffix)).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_restored_from_its_snapshot(
    halfway: Merge, reference: dict[str, bytes], damage: Callable[[Path], None]
) -> None:
    sealed = halfway.query("SELECT number FROM shards WHERE state = 'sealed'")
    assert sealed
    (folder,) = halfway.runs()
    write_ahead_log_is_gone(folder)
    damage(folder / LEDGER_FILE)
    assert halfway.finish().code == 0
    halfway.assert_done(reference)
    assert "ledger_restored" in halfway.events()
    kept = halfway.query("SELECT * FROM units WHERE attempt = 1 AND shard = 0")
    assert kept, "what the snapshot knows of is not computed again"


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_after_it_was_done(
    halfway: Merge, reference: dict[str, bytes], damage: Callable[[Path], None]
) -> None:
    halfway.finish()
    (folder,) = halfway.runs()
    damage(folder / LEDGER_FILE)
    assert halfway.finish().code == 0
    halfway.assert_done(reference)


def test_a_restored_ledger_trusts_nothing_unread(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    (folder,) = halfway.runs()
    garbage(folder / LEDGER_FILE)
    shard = sorted(halfway.out.glob("*.safetensors"))[0]
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    halfway.finish()
    halfway.assert_done(reference)
    assert "checksum_mismatch" in halfway.events()


def test_a_ledger_that_cannot_be_opened_now_is_not_damaged(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    """Going back to the snapshot would lose what was committed since."""
    (folder,) = halfway.runs()
    log = folder / (LEDGER_FILE + "-wal")
    log.rename(folder / "aside")
    log.mkdir()
    stopped = halfway.resume()
    assert stopped.code == 75, stopped.stderr
    log.rmdir()
    (folder / "aside").rename(log)
    halfway.finish()
    halfway.assert_done(reference)
    assert "ledger_restored" not in halfway.events()


@pytest.mark.parametrize("damage", [garbage, truncate, empty])
def test_ledger_and_snapshot_are_damaged(
    bench: Bench,
    halfway: Merge,
    reference: dict[str, bytes],
    damage: Callable[[Path], None],
) -> None:
    (folder,) = halfway.runs()
    write_ahead_log_is_gone(folder)
    for name in (LEDGER_FILE, SNAPSHOT_FILE):
        damage(folder / name)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = halfway.resume()
    assert refused.code == 2
    assert "damaged" in refused.stderr
    assert str(folder) in refused.stderr
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert all(after[name] == data for name, data in before.items() if name != "lock")
    # What the message says to do.
    assert f"resumerge run {folder / 'recipe.yaml'} " in refused.stderr
    halfway.config = folder / "recipe.yaml"
    shutil.rmtree(halfway.out)
    assert halfway.run().code == 0
    assert halfway.files() == reference
