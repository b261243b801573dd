"""Promise: a run that is mirrored to a bucket is there to the byte, whatever happens.

The mirror is looked at by a stranger after every request that may have changed it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from loopback_clouds import Cloud, Container
from loopback_s3 import Bucket, Server, before
from mirror_audit import AuditResult, check_mirror
from mirrored import KILLED, Bench, Driver, Ended, Merge

from resumerge.mirror.stores.registry import open_store

POINTS = 3
"""Requests at which a run is killed; with --soak at all of them."""

_numbers = itertools.count()


@dataclass
class BucketMerge(Merge):
    """A merge whose mirror is a place in a bucket."""

    bucket: Bucket | Container = field(kw_only=True)
    env: dict[str, str] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prefix = f"merge-{next(_numbers)}/"
        self.url = f"{self.bucket.url}/{self.prefix.removesuffix('/')}"
        self.options["mirror"] = self.url

    def _work(self, command: str, lacks: Any, far: dict[str, Any]) -> Ended:
        return self.driver.work(
            command=command,
            env=self.env,
            far=far,
            log=self.folder / "log.json",
            stderr=self.folder / "stderr",
            models=self.models,
            config=self.config,
            out=self.out,
            state=self.state,
            options=self.options,
        )

    def checked(self) -> AuditResult:
        return check_mirror(open_store(self.url))

    def mirrored(self) -> dict[str, bytes]:
        found = self.bucket.contents(self.prefix)
        found.pop(".resumerge/done.json", None)
        return found

    def assert_done(self, reference: dict[str, bytes]) -> None:
        super().assert_done(reference)
        assert self.bucket.begun_uploads() == []


class Merges:
    """Makes merges in one bucket."""

    def __init__(
        self, bench: Bench, bucket: Bucket | Container, server: Server | Cloud, folder: Path
    ) -> None:
        self.bench, self.bucket, self.server, self.folder = bench, bucket, server, folder

    def new(self, endpoint: str = "", **options: Any) -> BucketMerge:
        driver: Driver = self.bench._drivers[0]
        number = next(_numbers)
        env = {**self.server.env(endpoint), "RESUMERGE_LEASE_SECONDS": "600"}  # no beat in between
        return BucketMerge(
            self.folder / f"{number}",
            driver,
            self.bench.models,
            options=options,
            bucket=self.bucket,
            env=env,
        )


@pytest.fixture
def merges(bench: Bench, bucket: Bucket, s3: Server, tmp_path: Path) -> Merges:
    return Merges(bench, bucket, s3, tmp_path)


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


def test_a_server_that_is_away_is_resumed_later(
    merges: Merges, s3: Server | Cloud, reference: dict[str, bytes]
) -> None:
    with before(s3.endpoint) as proxy:
        merge = merges.new(proxy.endpoint, mirror_wait=0.5)

        def away(method: str, path: str) -> str | None:
            return "503" if method == "PUT" and "model-00002" in path else None

        proxy.choose = away
        ended = merge.run()
        assert ended.code == 75, ended.stderr
        assert "HTTP 503" in ended.stderr
        assert merge.checked().consistent
        assert (
            merge.model().items()
            >= {
                name: data for name, data in reference.items() if name.endswith(".safetensors")
            }.items()
        )
        proxy.choose = lambda method, path: None
        merge.options["mirror_wait"] = 60
        ended = merge.resume()
        assert ended.code == 0, ended.stderr
        merge.assert_done(reference)
        assert {"mirror_failing"} <= set(merge.events())
