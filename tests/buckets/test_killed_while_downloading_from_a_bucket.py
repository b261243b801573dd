"""Promise: killed anywhere while objects arrive, a merge goes on, and no byte is paid for twice."""

from __future__ import annotations

import signal
from pathlib import Path

from bucket_merges import SMALL_BATCHES, Place, linear, sent, sharded, upload, write
from loopback_s3 import Bucket, Proxy, Server
from loopback_sockets import bytes_on_the_way
from waiting import wait_until

KILLS = 3
SLACK = 1_000_000
"""The most bytes that a process has read, but not written, when it is killed."""


def test_killed_again_and_again(s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    models = [sharded(seed, layers=4, numel=500_000) for seed in (1, 2)]
    here = [write(tmp_path / "models" / str(n), files) for n, files in enumerate(models)]
    there = [upload(bucket, f"m/{n}", files) for n, files in enumerate(models)]
    calm = Place(s3, tmp_path / "calm", linear(*here))
    calm.call("run", "merge.yaml", "out")
    needed = sum(len(data) for m in models for n, data in m.items() if n.startswith("model-"))

    place = Place(s3, tmp_path / "killed", linear(*there), proxy)
    committed = []
    for kill in range(1, KILLS + 1):
        proxy.allowance.give(needed // (KILLS + 1))
        words = ("run", "merge.yaml", "out") if kill == 1 else ("resume", "out")
        process = place.start(*words, before=SMALL_BATCHES)
        wait_until(proxy.allowance.is_spent, process)
        wait_until(lambda: not bytes_on_the_way(proxy.endpoint), process)
        wait_until(lambda kill=kill: kill < KILLS or place.committed(), process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        committed.append(place.committed())
    proxy.allowance.give(None)
    place.call("resume", "out")

    headers = 8 * 40_000
    assert sum(sent(proxy).values()) < needed + headers + KILLS * SLACK
    assert place.output() == calm.output()
    assert committed == sorted(committed)
    assert list((place.folder / "hf").rglob("*.incomplete")) == []


def test_killed_between_arrival_and_name(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """A complete partial file is compared and named, and not fetched again."""
    files = sharded(1)
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    place.call("run", "merge.yaml", "out")
    for blob in (place.folder / "hf").rglob("blobs/*"):
        if blob.suffix == ".json":
            blob.unlink()
        else:
            blob.rename(blob.with_name(f"{blob.name}.incomplete"))
    proxy.sent.clear()
    place.call("run", "merge.yaml", "again")
    assert sent(proxy) == {}
    assert place.output("again") == place.output()
