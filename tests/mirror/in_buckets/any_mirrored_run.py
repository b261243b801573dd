"""What holds for a run mirrored to a bucket of any server: the test file of each takes it."""

from __future__ import annotations

import itertools

import pytest
from loopback_clouds import Cloud
from loopback_s3 import Server, before
from mirrored import KILLED
from mirrored_to_buckets import Merges

POINTS = 3
"""Requests at which a run is killed; with --soak at all of them."""


@pytest.mark.parametrize("then_delete", [False, True])
def test_killed_at_requests(
    merges: Merges, reference: dict[str, bytes], then_delete: bool, soak: bool
) -> None:
    options = {"mirror_then_delete": True} if then_delete else {}
    calm = merges.new(**options)
    ended = calm.run(url="" if then_delete and not soak else calm.url)
    assert ended.code == 0, ended.stderr
    calm.assert_done(reference)
    assert calm.model() == ({} if then_delete else reference)
    count = len(ended.kinds)
    points = 2 if then_delete else POINTS
    numbers = range(1, count + 1) if soak else range(count // points, count + 1, count // points)
    killed = []
    for at, mode in zip(numbers, itertools.cycle(["before", "after"])):
        merge = merges.new(**options)
        first = merge.run(at=at, mode=mode)
        assert first.code in (KILLED, 0), first.stderr
        killed.append(first.code == KILLED)
        assert merge.checked().consistent
        if then_delete and merge.has_begun:
            sealed = merge.rows("SELECT name FROM shards WHERE state = 'sealed'")
            gone = {row["name"] for row in sealed if not (merge.out / row["name"]).exists()}
            assert gone <= merge.checked().files.keys()
        again = merge.resume(url=merge.url if soak else "")
        assert again.code == 0, again.stderr
        merge.assert_done(reference)
    print(f"killed at {sum(killed)} of {len(killed)} requests; a calm run makes {count}")
    assert sum(killed) > 0.8 * len(killed)


def test_a_server_that_fails_now_and_then(
    merges: Merges, s3: Server | Cloud, reference: dict[str, bytes], soak: bool
) -> None:
    with before(s3.endpoint) as proxy:
        for seed in range(40 if soak else 1):
            proxy.shake(seed, share=0.25)
            merge = merges.new(proxy.endpoint)
            ended = merge.run()
            for _ in range(5):
                if ended.code != 75:
                    break
                ended = merge.resume()
            assert ended.code == 0, ended.stderr
            merge.assert_done(reference)
        print(f"of {len(proxy.requests)} requests: {dict(proxy.wrong)}")
        assert sum(proxy.wrong.values()) > 5
