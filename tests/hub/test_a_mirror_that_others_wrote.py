"""Promise: olah serves as the Hub, with no sizes in its listings, git's hashes, and no ranges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_hub import Hub
from loopback_s3 import before
from merges import Place, layered, output
from olah import Olah
from waiting import wait_until


@pytest.fixture
def olah(tmp_path: Path) -> Iterator[Olah]:
    server = Olah(tmp_path / "olah")
    for name, seed in (("org/math", 1), ("org/code", 2)):
        server.commit(name, layered(seed, shards=3, numel=1_000_000))
    server.start()
    yield server
    server.stop()


def test_same_merge_as_from_the_hub_even_if_it_is_killed(
    olah: Olah, hub: Hub, tmp_path: Path
) -> None:
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed, shards=3, numel=1_000_000))
    calm = Place(hub, tmp_path / "hub place")
    calm.call("run", "merge.yaml", "out")
    hub.forget_requests()

    with before(olah.url) as proxy:
        place = Place(hub, tmp_path / "olah place", HF_ENDPOINT=proxy.endpoint)
        document = place.document("plan", "merge.yaml")
        assert document["problems"] == []
        proxy.allowance.give(6_000_000)
        process = place.start("run", "merge.yaml", "out")
        wait_until(proxy.allowance.is_spent, process)
        blobs = place.folder / "hf" / "hub"
        wait_until(lambda: list(blobs.glob("*/blobs/*.incomplete")), process)
        process.kill()
        process.wait()
    place.env["HF_ENDPOINT"] = olah.url
    place.call("run", "merge.yaml", "out")
    assert output(place.folder / "out") == output(calm.folder / "out")
    assert hub.requests == []

    checked = place.document("cache", "check", "merge.yaml")
    assert checked["intact"]
    assert len(checked["files"]) == 9
    again = place.call("run", "merge.yaml", "again", "--offline")
    assert "Downloading" not in again.stderr
