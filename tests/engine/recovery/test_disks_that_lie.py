"""Promise: acknowledged writes that a disk loses are found before the model is done."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from crashing import KILLED, Bench, Merge, flip


def assert_found(merge: Merge, reference: dict[str, bytes]) -> None:
    """Check that every file is as in the uninterrupted run, whatever was lost of it.

    A damaged companion counts as a file of the user's: it is renamed, or stays with a note if it is
    the model card.
    """
    found = merge.files()
    assert {name.split(".kept")[0] for name in found} == set(reference)
    said = "".join(attempt.stderr for attempt in merge.attempts)
    for name, data in reference.items():
        assert found[name] == data or (name == "README.md" and "README.md was not written" in said)


def is_done(merge: Merge) -> bool:
    return bool(merge.runs()) and merge.query("SELECT state FROM run") == [{"state": "done"}]


def test_any_acknowledged_write_is_lost(
    bench: Bench, reference: dict[str, bytes], operations: int, soak: bool
) -> None:
    """The disk forgets writes of the attempt at a crash, synced or not."""
    crashed = []

    def check(merge: Merge, point: tuple[int, int]) -> None:
        at, seed = point
        ended = merge.run(at, "lying", seed=seed)
        assert ended.code in (KILLED, 0), ended.stderr
        if is_done(merge):
            return
        merge.finish()
        assert_found(merge, reference)
        crashed.append(ended.code == KILLED)

    step = 1 if soak else 5
    bench.each([(at, at) for at in range(20, operations + 1, step)], check)
    assert sum(crashed) > 0.9 * len(crashed)


def test_writes_are_lost_attempt_after_attempt(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    def check(merge: Merge, seed: int) -> None:
        draw = random.Random(seed)
        merge.run(draw.randrange(operations // 4, operations), "lying", seed=seed)
        for _ in range(3):
            if merge.runs() and not is_done(merge):
                merge.resume(draw.randrange(5, operations // 2), "lying", seed=draw.random())
        if not is_done(merge):
            merge.finish()
            assert_found(merge, reference)

    bench.each(range(8), check)


def committed(merge: Merge) -> list[dict[str, Any]]:
    return merge.query(
        'SELECT name, "offset", nbytes, shard FROM units WHERE checksum IS NOT NULL ORDER BY number'
    )


def interrupt(merge: Merge, at: int) -> None:
    """Kill a merge at an operation, and again until it has a committed unit to damage."""
    assert merge.run(at).code in (KILLED, 0)
    while not committed(merge):
        at += 10
        assert merge.resume(at).code in (KILLED, 0)


def damage(merge: Merge, draw: random.Random) -> Path:
    """Flip a bit of a committed block, sealed or not, and return the file."""
    unit = draw.choice(committed(merge))
    [shard] = merge.query(f"SELECT name FROM shards WHERE number = {unit['shard']}")
    final = merge.out / shard["name"]
    path = final if final.exists() else final.with_name(final.name + ".partial")
    flip(path, unit["offset"] + draw.randrange(unit["nbytes"]))
    return path


def interrupted(bench: Bench, at: int) -> Merge:
    merge = bench.merge()
    interrupt(merge, at)
    return merge


def test_a_flipped_bit_is_found_wherever_it_is(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    """The test crashes at ten moments, and damages batches older than the last ones, too."""

    def check(merge: Merge, at: int) -> None:
        interrupt(merge, at)
        damage(merge, random.Random(at))
        merge.finish()
        merge.assert_done(reference)
        assert "checksum_mismatch" in merge.events()

    bench.each(range(operations // 3, operations - 15, (2 * operations // 3 - 15) // 10), check)


@pytest.mark.parametrize("mode", ["full", "stop"])
def test_after_a_full_disk_or_a_signal_it_is_found_too(
    bench: Bench, reference: dict[str, bytes], operations: int, mode: str
) -> None:
    merge = bench.merge()
    assert merge.run(operations - 25, mode).code in (75, 143)
    damage(merge, random.Random(mode))
    merge.finish()
    merge.assert_done(reference)
    assert {"checksum_mismatch", "rechecked"} <= set(merge.events())


@pytest.mark.parametrize("then_delete", [False, True])
def test_with_a_mirror_damage_does_not_get_there(
    bench: Bench, reference: dict[str, bytes], operations: int, then_delete: bool
) -> None:
    """The shards here are compared before any is uploaded, or deleted here."""

    def check(merge: Merge, at: int) -> None:
        mirror = merge.folder / "mirror"
        interrupt(merge, at)  # without a mirror, so that everything is here still
        damage(merge, random.Random(at))
        options = {"mirror": str(mirror), "mirror_then_delete": then_delete}
        ended = merge.resume(**options)
        assert ended.code == 0, ended.stderr
        for name, data in reference.items():
            assert (mirror / name).read_bytes() == data, name

    bench.each(range(operations // 3, operations - 15, operations // 6), check)


@pytest.mark.parametrize("cut", [1, 4096])
def test_a_sealed_shard_that_was_truncated(
    bench: Bench, reference: dict[str, bytes], operations: int, cut: int
) -> None:
    """The file has its full size again, as a filesystem's check may leave it."""
    merge = interrupted(bench, operations - 20)
    path = next(path for path in sorted(merge.out.iterdir()) if path.suffix == ".safetensors")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(max(2000, size - cut))
        file.truncate(size)
    merge.finish()
    merge.assert_done(reference)


def test_a_run_that_nobody_interrupted_reads_nothing_again(bench: Bench) -> None:
    merge = bench.merge()
    assert merge.run().code == 0
    assert "rechecked" not in merge.events()


def test_the_recheck_can_be_left_out(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    merge = interrupted(bench, operations - 20)
    damage(merge, random.Random(0))
    assert merge.resume(no_recheck=True).code == 0
    assert "rechecked" not in merge.events()
    assert merge.files() != reference
    assert merge.verify().code == 75


def test_killed_while_what_was_committed_is_read_again(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    def check(merge: Merge, at: int) -> None:
        interrupt(merge, operations // 2)
        damage(merge, random.Random(at))
        merge.resume(at)
        merge.finish()
        merge.assert_done(reference)

    bench.each(range(5, operations // 2 + 15, 12), check)
