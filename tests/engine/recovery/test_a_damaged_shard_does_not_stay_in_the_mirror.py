"""Promise: a shard that is damaged here does not count as mirrored, and is uploaded again.

It may have been damaged before it was uploaded.
"""

from __future__ import annotations

from crashing import Bench, Merge, flip

SHARD = "model-00001-of-00004.safetensors"


def damage(merge: Merge) -> None:
    """Flip a bit of the shard, here and in the mirror."""
    [unit] = merge.query('SELECT "offset" FROM units WHERE number = 1')
    for folder in (merge.out, merge.folder / "mirror"):
        flip(folder / SHARD, unit["offset"])


def is_mirrored(merge: Merge) -> bool:
    return bool(merge.runs()) and bool(
        merge.query(f"SELECT 1 FROM mirrored WHERE name = '{SHARD}'")
    )


def killed_after_the_upload(bench: Bench, operations: int) -> Merge:
    """Return a merge that was killed after the upload of the shard.

    The operation depends on how far merging is ahead of uploading.
    """
    for at in range(operations * 3 // 4, operations * 2, 5):
        merge = mirrored(bench)
        merge.run(at)
        if is_mirrored(merge):
            return merge
    raise AssertionError("no such operation")


def mirrored(bench: Bench) -> Merge:
    merge = bench.merge()
    merge.options = {**merge.options, "mirror": str(merge.folder / "mirror")}
    return merge


def test_found_by_the_next_attempt(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    merge = killed_after_the_upload(bench, operations)
    damage(merge)
    merge.finish()
    merge.assert_done(reference)
    assert (merge.folder / "mirror" / SHARD).read_bytes() == reference[SHARD]


def test_found_by_verify(bench: Bench, reference: dict[str, bytes]) -> None:
    merge = mirrored(bench)
    assert merge.run().code == 0
    damage(merge)
    assert merge.verify().code == 75
    assert not is_mirrored(merge)
    merge.finish()
    merge.assert_done(reference)
    assert (merge.folder / "mirror" / SHARD).read_bytes() == reference[SHARD]
