"""Promise: killed at any operation on its mirror, a run leaves the mirror consistent, and goes on.

The mirror is audited after every single operation of every process here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from mirrored import KILLED, Bench, Merge, one_of_each_kind

COMPANION = re.compile(r"README.md|mergekit_config.yml|config.json|model.*index.json")
"""The files beside the weights: each comes there as any other."""


def crash_points(kinds: list[str], numbers: Iterable[int], soak: bool) -> list[int]:
    """Return some of these operations; all of them with --soak."""
    alike = [COMPANION.sub("companion", kind) for kind in kinds]
    return list(numbers) if soak else one_of_each_kind(alike, numbers)


def names_in_order(kinds: list[str]) -> list[str]:
    """Return the names that files got in the mirror, without snapshots, leases and probes."""
    names = [kind.removeprefix("replace ") for kind in kinds if kind.startswith("replace ")]
    return [name for name in names if not name.startswith(("ledger-", "lease-", "probe-"))]


@pytest.mark.timeout(1800)  # hundreds of merges, of which none may hang: see `fork_server`
@pytest.mark.parametrize("mode", ["kill", "torn"])
def test_killed_at_every_operation(
    bench: Bench, reference: dict[str, bytes], mode: str, soak: bool
) -> None:
    calm = bench.merge()
    calm.lease = "3600"  # which is not renewed: others have these operations, and perhaps more
    ended = calm.run()
    assert ended.code == 0, ended.stderr
    calm.assert_done(reference)
    assert calm.model() == reference
    assert names_in_order(ended.kinds)[-2:] == ["config.json", "done.json"]
    numbers = [
        number
        for number, kind in enumerate(ended.kinds, 1)
        if mode == "kill" or kind.startswith("write")
    ]
    operations = crash_points(ended.kinds, numbers, soak)
    killed = []

    def check(merge: Merge, at: int) -> None:
        usual = merge.lease
        if mode == "torn":  # a renewal more, and another operation has this number: no write
            merge.lease = "3600"
        first = merge.run(at=at, mode=mode)
        merge.lease = usual
        assert first.code in (KILLED, 0), first.stderr
        killed.append(first.code == KILLED)
        assert merge.checked().consistent
        again = merge.resume()
        assert again.code == 0, again.stderr
        merge.assert_done(reference)
        assert merge.model() == reference

    bench.each(operations, check)
    print(f"killed at {sum(killed)} of {len(operations)} operations")
    assert sum(killed) > 0.9 * len(operations)


def test_killed_while_shards_are_freed(
    bench: Bench, reference: dict[str, bytes], soak: bool
) -> None:
    """No local shard is deleted before another machine could continue without it."""
    calm = bench.merge(mirror_then_delete=True)
    calm.lease = "3600"
    ended = calm.run()
    assert ended.code == 0, ended.stderr
    calm.assert_done(reference)
    assert calm.model() == {}, "half a model is none"
    killed = []

    def check(merge: Merge, at: int) -> None:
        merge.options["mirror_then_delete"] = True
        first = merge.run(at=at)
        assert first.code in (KILLED, 0), first.stderr
        killed.append(first.code == KILLED)
        found = merge.checked()
        assert found.consistent
        if merge.has_begun:
            sealed = merge.rows("SELECT name FROM shards WHERE state = 'sealed'")
            gone = [row["name"] for row in sealed if not (merge.out / row["name"]).exists()]
            assert set(gone) <= set(found.files)
        again = merge.resume()
        assert again.code == 0, again.stderr
        merge.assert_done(reference)
        assert merge.model() == {}
        assert "shard_lost" not in merge.events()

    shards = [n for n, kind in enumerate(ended.kinds, 1) if "model-" in kind or "ledger-" in kind]
    bench.each(crash_points(ended.kinds, shards, soak), check)
    assert sum(killed) > 0.9 * len(killed)
