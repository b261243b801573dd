"""Promise: what the last two batches wrote is compared at once, without the recheck at the end.

Two may be under way at a crash. What is older is compared before the model is done
(test_disks_that_lie.py); here that is left out.
"""

from __future__ import annotations

from typing import Any

import pytest
from crashing import Bench, Ended, Merge, flip

SHARD = "model.safetensors.partial"


def in_one_shard(bench: Bench) -> Merge:
    """Return a merge into one shard, with a batch for each block."""
    merge = bench.merge()
    merge.options, merge.uncommitted_limit = {"shard_size": 10**9}, 2048
    return merge


@pytest.fixture(scope="module")
def undisturbed(bench: Bench) -> tuple[Ended, dict[str, bytes]]:
    """Merge into one shard; return how the merge ended, and its output."""
    merge = in_one_shard(bench)
    ended = merge.run()
    assert ended.code == 0, ended.stderr
    return ended, merge.files()


def last_two_batches(merge: Merge, attempt: int) -> list[list[dict[str, Any]]]:
    """Return the units that each of the last two batches of an attempt was the last to write."""
    rows = merge.query(f'SELECT name, "offset", batch FROM units WHERE attempt = {attempt}')
    last = max(row["batch"] for row in rows)
    return [[row for row in rows if row["batch"] == number] for number in (last, last - 1)]


def killed(bench: Bench, operation: int, attempts: int) -> Merge:
    """Kill a merge so that each of its last two batches was the last to write to some unit.

    A large unit takes several batches: the one before the last may have none of its own.
    """
    for earlier in range(20):
        merge = in_one_shard(bench)
        merge.run(operation - (earlier if attempts == 1 else 0))
        if attempts == 2:
            merge.resume(50 - earlier, no_recheck=True)
        if all(last_two_batches(merge, attempts)):
            return merge
    raise AssertionError("no such operation")


@pytest.mark.parametrize("attempts", [1, 2])
def test_damage_of_each_of_the_last_two_batches_is_found_at_once(
    bench: Bench, undisturbed: tuple[Ended, dict[str, bytes]], attempts: int
) -> None:
    """The damaged batches are those of the last attempt, whatever earlier attempts committed."""
    ended, reference = undisturbed
    writes = [n for n, kind in enumerate(ended.kinds, 1) if kind == f"write {SHARD}"]
    merge = killed(bench, (writes[0] + writes[-1]) // 2, attempts)
    for units in last_two_batches(merge, attempts):
        flip(merge.out / SHARD, units[0]["offset"])
    ended = merge.resume(no_recheck=True)
    assert ended.code == 0, ended.stderr
    merge.assert_done(reference)
    assert "rechecked" not in merge.events()
