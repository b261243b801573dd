"""Promise: who knows the bucket that a run is mirrored to can go on with it, with nothing else.

No secret is written anywhere.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback_s3 import Bucket, Server
from loopback_s3.servers import SECRET
from machines import SLOW, Machine, files_of, go_on_with, held, in_mirror, kill
from waiting import wait_until

from resumerge.errors import InputError
from resumerge.mirror.stores.base import StoreError
from resumerge.mirror.stores.registry import open_store

PREFIX = "merges/llama/"
KILLS = 3


@pytest.fixture
def url(bucket: Bucket) -> str:
    return f"s3://{bucket.name}/{PREFIX}"


@pytest.fixture
def new(s3: Server, tmp_path: Path, models: Path) -> Callable[[], Machine]:
    """Return a function that makes machines that have nothing but credentials."""
    numbers = iter(range(1000))
    return lambda: Machine(tmp_path / str(next(numbers)), models, environment=s3.env())


def model(bucket: Bucket) -> dict[str, bytes]:
    """Return every object below the prefix but the manifest."""
    there = bucket.contents(PREFIX)
    there.pop(".resumerge/done.json", None)
    return there


def test_killed_again_and_again_and_always_another_machine(
    bucket: Bucket,
    url: str,
    new: Callable[[], Machine],
    reference_of_machines: dict[str, bytes],
    soak: bool,
) -> None:
    if not soak:
        pytest.skip("one kill is in the next test; more of them with --soak")

    def shards() -> set[str]:
        return {name for name in open_store(url).list() if name.endswith(".safetensors")}

    for seed in range(20):
        print(f"seed {seed}")
        draw = random.Random(seed)
        machine, before = new(), in_mirror(url)
        machine.hold(39 // KILLS - 1)
        process = machine.begin(url, **SLOW)
        for kills in range(1, KILLS + 1):
            target = len(shards()) + draw.randint(0, 1)
            # Without a snapshot, the next machine would find no run.
            wait_until(lambda: held(url).snapshot and len(shards()) >= target, process)  # noqa: B023
            time.sleep(draw.uniform(0.0, 0.2))
            kill(process)
            before = in_mirror(url)
            assert len(before.sealed) >= target - 1  # a shard comes just before the snapshot
            for name in before.sealed:
                assert model(bucket)[name] == reference_of_machines[name]
            machine.wipe()
            machine = new()
            if kills < KILLS:
                machine.hold(39 // KILLS - 1)
            process = machine.start("resume", url, "--threads", "1", **SLOW)
        _, err = process.communicate()
        assert process.returncode == 0, err
        rows = machine.rows("SELECT number, attempt, batch FROM units")
        found = {row["number"]: (row["attempt"], row["batch"]) for row in rows}
        for number, by in before.units.items():
            assert found[number] == by, f"{number} was computed again"
        assert model(bucket) == reference_of_machines
        assert bucket.unfinished_uploads() == []
        machine.wipe()
        for name in bucket.contents():
            bucket.api.delete_object(Bucket=bucket.name, Key=name)


def test_one_machine_at_a_time(
    bucket: Bucket, url: str, new: Callable[[], Machine], reference_of_machines: dict[str, bytes]
) -> None:
    first, second = new(), new()
    go_on_with(first, second, url)
    assert files_of(second.out) == reference_of_machines == model(bucket)
    bucket.put(f"{PREFIX}model-00002-of-00008.safetensors", b"damaged")
    out, err = second.call("verify", url, expect=75)
    assert "model-00002-of-00008.safetensors" in out + err


def test_no_secret_is_written_anywhere(
    bucket: Bucket, url: str, new: Callable[[], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that succeeds, a refused address and an unreachable server leave no secret anywhere."""
    machine = new()
    log = machine.folder / "log"
    chatty = {"RESUMERGE_LOG": f"debug:{log}"}
    process = machine.begin(url, "-vv", **chatty)
    said = [*process.communicate()]
    assert process.returncode == 0, said
    said += machine.call("status", url, "-vv", **chatty)
    said += machine.call("status", "--html", "page.html", **chatty)
    said += machine.call("resume", f"s3://someone:{SECRET}@{bucket.name}/x", expect=2, **chatty)
    process = machine.begin(f"s3://someone:{SECRET}@{bucket.name}/x", **chatty)
    said += process.communicate()
    assert process.returncode == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://someone:{SECRET}@127.0.0.1:1")
    with pytest.raises(StoreError, match="cannot be reached") as unreachable:
        open_store(url).list()
    said += traceback.format_exception(unreachable.value)
    files = [path for path in machine.folder.rglob("*") if path.is_file()]
    assert log in files
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    assert all(SECRET.encode() not in data for data in bucket.contents().values())
    assert SECRET not in "".join(said)


def test_what_cannot_be_a_mirror_is_refused_before_anything_is_written(
    bucket: Bucket, url: str, new: Callable[[], Machine]
) -> None:
    machine = new()
    for address in ("s3://x", f"s3://{bucket.name}/a/../b", f"s3://{bucket.name}//b"):
        with pytest.raises(InputError, match="not the address of a place in a bucket"):
            open_store(address)
    with pytest.raises(InputError, match="Offline mode is on"):
        open_store(url, offline=True)
    process = machine.begin("s3://no-such-bucket/x")
    _, err = process.communicate()
    assert process.returncode == 2
    assert "NoSuchBucket" in err
    process = machine.begin(url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    _, err = process.communicate()
    assert process.returncode == 2
    assert "no usable credentials" in err
    bucket.put(f"{PREFIX}someone-elses", b"file")
    process = machine.begin(url)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "contains other files" in err
    assert not machine.out.exists()
    assert not machine.rows("SELECT * FROM run")
    assert bucket.contents() == {f"{PREFIX}someone-elses": b"file"}
