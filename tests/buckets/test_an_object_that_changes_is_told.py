"""Promise: a run never mixes two versions of a model in a bucket; it stops, or is refused, and says
which object changed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from bucket_merges import Files, Place, forget, linear, sent, shard, sharded, upload
from loopback_s3 import Bucket, Proxy, Server
from waiting import wait_until

from resumerge.ledger.run_store import RunStore

FIRST, LAST = shard(1, 4), shard(4, 4)


@pytest.fixture
def files() -> Files:
    return sharded(1, layers=4, numel=100_000)


def killed(place: Place, proxy: Proxy, after: int) -> None:
    """Start a run, and kill it when so many bytes have arrived."""
    proxy.allowance.give(after)
    process = place.start("run", "merge.yaml", "out")
    runs = RunStore(place.folder / "state").runs  # without one that is being made
    wait_until(lambda: proxy.allowance.is_spent() and runs(), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    proxy.allowance.give(None)


def test_between_two_attempts_it_is_refused_and_the_old_object_is_taken_again(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path, files: Files
) -> None:
    address = upload(bucket, "m", files)
    place = Place(s3, tmp_path / "place", linear(address), proxy)
    killed(place, proxy, after=500_000)
    other = sharded(2, layers=4, numel=100_000)
    bucket.put(f"m/{LAST}", other[LAST])
    forget(proxy)
    told = place.call("resume", "out", expect=2).stderr
    assert "A source has changed since the run was created" in told
    assert f"m/{LAST} has different contents" in told and FIRST not in told
    assert LAST not in sent(proxy) or sent(proxy)[LAST] < 40_000

    bucket.put(f"m/{LAST}", files[LAST])
    bucket.put("m/notes.txt", b"another object, which the model does not consist of")
    bucket.put("m/generation_config.json", b"{}")
    place.call("resume", "out")
    calm = Place(s3, tmp_path / "calm", linear(address))
    calm.call("run", "merge.yaml", "out")
    assert place.output() == calm.output()


def test_a_changed_config_is_told(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path, files: Files
) -> None:
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    killed(place, proxy, after=500_000)
    bucket.put("m/config.json", files["config.json"].replace(b"}", b', "vocab_size": 7}'))
    told = place.call("resume", "out", expect=2).stderr
    assert f"s3://{bucket.name}/m/config.json has different contents" in told


def test_a_deleted_one_is_told(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path, files: Files
) -> None:
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    killed(place, proxy, after=500_000)
    bucket.delete("m/config.json")
    told = place.call("resume", "out", expect=2).stderr
    assert f"s3://{bucket.name}/m/config.json is missing" in told
    bucket.put("m/config.json", files["config.json"])
    bucket.delete(f"m/{LAST}")
    told = place.call("resume", "out", expect=75).stderr
    assert "could be read when the run was created" in told and "put it back" in told
    assert f"missing: {LAST}" in told
    bucket.put(f"m/{LAST}", files[LAST])
    place.call("resume", "out")


@pytest.mark.parametrize("ignored", ["", "if-match"])
def test_while_it_is_merged_the_run_stops(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path, files: Files, ignored: str
) -> None:
    """The run stops when an object is replaced, even if the server ignores conditions."""
    address = upload(bucket, "m", files)
    proxy.drops = {ignored}
    other = sharded(2, layers=4, numel=100_000)[LAST]
    asked: list[str] = []

    def replace(method: str, path: str) -> None:
        if method == "GET" and path.endswith(LAST):
            asked.append(path)
            if len(asked) == 2:  # the first one is for its header
                bucket.put(f"m/{LAST}", other)

    proxy.choose = lambda method, path: replace(method, path)
    place = Place(s3, tmp_path / "place", linear(address), proxy)
    told = place.call("run", "merge.yaml", "out", expect=75).stderr
    assert f"{address}/{LAST} changed" in told
    assert "resumerge resume" in told
    assert not (place.folder / "out" / "config.json").exists()
    assert place.events("stopped")[-1]["cause"] == "source_changed"
    told = place.call("resume", "out", expect=2).stderr
    assert f"m/{LAST} has different contents" in told
    bucket.put(f"m/{LAST}", files[LAST])
    place.call("resume", "out")


def test_an_object_that_disappears_while_it_is_merged(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path, files: Files
) -> None:
    address = upload(bucket, "m", files)
    seen = []

    def remove(method: str, path: str) -> None:
        if method == "HEAD" and path.endswith(LAST):
            seen.append(path)
            bucket.api.delete_object(Bucket=bucket.name, Key=f"m/{LAST}")

    proxy.choose = lambda method, path: remove(method, path)
    place = Place(s3, tmp_path / "place", linear(address), proxy)
    told = place.call("run", "merge.yaml", "out", expect=75).stderr
    assert seen and f"{address}/{LAST} changed: it is gone" in told


def test_what_is_in_the_cache_is_merged_without_the_bucket(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path, files: Files
) -> None:
    """A run whose files are all in the cache continues with them under --offline."""
    address = upload(bucket, "m", files)
    place = Place(s3, tmp_path / "place", linear(address), proxy)
    place.call("run", "merge.yaml", "out")
    before = place.output()
    bucket.put(f"m/{LAST}", sharded(2, layers=4, numel=100_000)[LAST])
    place.call("plan", "merge.yaml")  # which knows of the new object
    (place.folder / "out" / "model.safetensors").unlink()
    place.call("resume", "out", expect=2)
    place.call("resume", "out", "--offline")
    assert place.output() == before
