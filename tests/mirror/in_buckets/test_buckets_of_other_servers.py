"""Promise: what holds for a bucket of one server holds for others: SeaweedFS, a distributed object
store, and rclone, which ignores the conditions of writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from any_bucket import (
    large,
    place,
    proxy,
    test_a_process_that_is_killed_leaves_parts_that_the_next_one_does_not_send_again,
    test_an_exclusive_write_whose_answer_is_lost,
    test_no_update_is_lost_between_claimants,
    test_only_uploads_of_the_files_that_are_named_are_aborted,
    test_parts_of_another_file_are_replaced,
    test_what_was_created_is_not_replaced,
    url,
)
from any_mirrored_run import test_a_server_that_fails_now_and_then as fails
from any_mirrored_run import test_killed_at_requests as killed
from loopback_s3 import Bucket, Server, start
from loopback_s3.servers import missing
from machines import HELD, SLOW, Machine, files_of, in_mirror, kill
from mirrored_to_buckets import Merges, merges
from store_conformance import CHECKS, Check, Place
from waiting import wait_until

from resumerge.errors import InputError, StoreError
from resumerge.mirror import Lease
from resumerge.mirror.stores.registry import open_store

__all__ = [
    "large",
    "merges",
    "place",
    "proxy",
    "test_a_process_that_is_killed_leaves_parts_that_the_next_one_does_not_send_again",
    "test_an_exclusive_write_whose_answer_is_lost",
    "test_no_update_is_lost_between_claimants",
    "test_only_uploads_of_the_files_that_are_named_are_aborted",
    "test_parts_of_another_file_are_replaced",
    "test_what_was_created_is_not_replaced",
    "url",
]


def server(kind: str) -> Iterator[Server]:
    """Yield a server of this kind, or skip the test if it is not installed."""
    if why := missing(kind):
        pytest.skip(why)
    with start(kind) as found:
        yield found


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    """Yield SeaweedFS, for the tests of this module and those that it imports."""
    yield from server("seaweedfs")


@pytest.fixture(scope="module")
def rclone() -> Iterator[Server]:
    yield from server("rclone")


@pytest.fixture
def weak(rclone: Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return a bucket that ignores the conditions of writes."""
    for name, value in rclone.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("resumerge.mirror.stores.buckets.store.SETTLE_SECONDS", 0.2)
    return Bucket(rclone.env())


each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@each_check
def test_seaweedfs(check: Check, bucket: Bucket, tmp_path: Path) -> None:
    check(Place(lambda: open_store(f"s3://{bucket.name}/some/prefix"), tmp_path))


@pytest.mark.parametrize("then_delete", [False, True])
def test_killed_at_requests(
    merges: Merges, reference: dict[str, bytes], then_delete: bool, soak: bool
) -> None:
    if not soak:
        pytest.skip("with moto always, with SeaweedFS only with --soak")
    killed(merges, reference, then_delete, soak=False)


def test_a_server_that_fails_now_and_then(
    merges: Merges, s3: Server, reference: dict[str, bytes], soak: bool
) -> None:
    if not soak:
        pytest.skip("with moto always, with SeaweedFS only with --soak")
    fails(merges, s3, reference, soak=False)


@each_check
def test_rclone(check: Check, weak: Bucket, tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("a run on it is in the next test; the whole contract with --soak")
    check(Place(lambda: open_store(f"s3://{weak.name}/some/prefix"), tmp_path))


def is_sealed(url: str) -> bool:
    """Return whether the mirror has a sealed shard.

    rclone lists an object without an ETag while it writes it, which is an error.
    """
    try:
        return bool(in_mirror(url).sealed)
    except StoreError:
        return False


def test_a_run_on_a_server_that_cannot_hold_a_lease(
    rclone: Server, weak: Bucket, models: Path, tmp_path: Path
) -> None:
    """A machine has to confirm with `--take-over` once that no other machine works there."""
    url = f"s3://{weak.name}/p"
    with pytest.raises(InputError, match="it ignores If-None-Match"):
        Lease.acquire(open_store(url), "run")
    assert weak.contents() == {}
    machine = Machine(tmp_path / "machine", models, environment=rclone.env())
    process = machine.begin(url)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "This store cannot keep two machines from working on one mirror" in err
    machine.hold(HELD)
    process = machine.begin(url, "--take-over", **SLOW)
    wait_until(lambda: is_sealed(url), process)
    kill(process)
    machine.let_go()
    machine.call("resume", url)
    found = weak.contents("p/")
    found.pop(".resumerge/done.json")
    assert found == files_of(machine.out)
