"""Promise: what holds for a mirror in a bucket of S3 holds in Google Cloud Storage and in Azure."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from any_bucket import (
    test_a_neighbour_and_marks_of_folders_are_no_files_of_the_mirror,
    test_no_update_is_lost_between_claimants,
    test_what_fails_for_long_fails_for_now,
    test_what_was_created_is_not_replaced,
)
from any_mirrored_run import test_a_server_that_fails_now_and_then as fails
from any_mirrored_run import test_killed_at_requests as killed
from loopback_clouds import Cloud, Container, fixtures
from loopback_clouds.clouds import ACCOUNT, SECRET
from loopback_s3 import Proxy, before
from machines import ROOT, Machine, files_of, go_on_with, kill
from mirrored_to_buckets import Merges
from store_conformance import CHECKS, Check, Place, Stopped
from waiting import wait_until

from resumerge.errors import InputError
from resumerge.mirror.stores.base import Store, StoreError
from resumerge.mirror.stores.buckets import azure, google
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.mirror.stores.registry import open_store

__all__ = [
    "test_a_neighbour_and_marks_of_folders_are_no_files_of_the_mirror",
    "test_no_update_is_lost_between_claimants",
    "test_what_fails_for_long_fails_for_now",
    "test_what_was_created_is_not_replaced",
]

NAME = "model-00001-of-00002.safetensors"
PART = 1 << 20
ONE_GOES_WRONG = {("503", 1), ("cut", 2), ("cut answer", 3), ("lost", 1), ("lost", 3)}
UPLOAD = f"""
import sys
from pathlib import Path
from resumerge.mirror.stores.buckets import azure, google
from resumerge.mirror.stores.registry import open_store
azure.UPLOADED_BLOCK = google.CHUNK = {PART}
open_store(sys.argv[1]).upload({NAME!r}, Path(sys.argv[2]), lambda nbytes: None)
"""


cloud, bucket = fixtures.cloud, fixtures.bucket


@pytest.fixture
def proxy(cloud: Cloud, bucket: Container, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield a proxy before the emulator, to which this process's environment leads."""
    with before(cloud.endpoint) as proxy:
        for name, value in cloud.env(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def url(bucket: Container) -> str:
    return f"{bucket.url}/p"


@pytest.fixture
def place(url: str, proxy: Proxy) -> Store:
    return open_store(url)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a file of several parts, larger than what Google's library sends in one request."""
    monkeypatch.setattr(azure, "UPLOADED_BLOCK", PART)
    monkeypatch.setattr(google, "CHUNK", PART)
    path = tmp_path / "large"
    path.write_bytes(random.Random(1).randbytes(9 * PART + 1000))
    return path


@pytest.fixture
def merges(bench: object, bucket: Container, cloud: Cloud, tmp_path: Path) -> Merges:
    return Merges(bench, bucket, cloud, tmp_path)  # type: ignore[arg-type]


@pytest.fixture
def new(cloud: Cloud, tmp_path: Path, models: Path) -> Callable[[], Machine]:
    """Return a function that makes machines that have nothing but credentials."""
    numbers = iter(range(1000))
    return lambda: Machine(tmp_path / str(next(numbers)), models, environment=cloud.env())


def ignore(nbytes: int) -> None:
    """Ignore the number of bytes that were moved."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_stores(check: Check, bucket: Container, tmp_path: Path) -> None:
    check(Place(lambda: open_store(f"{bucket.url}/some/prefix"), tmp_path))


def test_it_can_hold_a_lease(place: Store) -> None:
    assert place.lease_obstacle() == "" and place.settle_seconds == 0


# Uploads


def test_a_process_that_is_killed_while_it_uploads(
    url: str, place: Store, proxy: Proxy, bucket: Container, large: Path
) -> None:
    """Azure keeps the blocks that were sent; Google's library sends the whole file again."""
    idle, puts = proxy.connections, itertools.count()
    proxy.choose = lambda method, path: "held" if method == "PUT" and next(puts) >= 2 else None
    command = [sys.executable, "-c", UPLOAD, url, str(large)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    wait_until(lambda: proxy.wrong["held"], process)
    kill(process)
    wait_until(lambda: proxy.connections <= idle)  # the server has done what came before the kill
    proxy.choose = lambda method, path: None
    assert NAME not in place.list()
    proxy.requests.clear()
    assert place.upload(NAME, large, ignore) == hashlib.sha256(large.read_bytes()).hexdigest()
    blocks = [path for _, path in proxy.requests if "comp=block&" in path]
    assert len(blocks) < 10
    assert bucket.contents("p/") == {NAME: large.read_bytes()}
    assert bucket.unfinished_uploads() == []
    proxy.requests.clear()
    place.upload(NAME, large, ignore)
    assert not [m for m, _ in proxy.requests if m in ("PUT", "POST")], "it is there already"


def test_abandoned_uploads_leave_nothing_that_is_listed(
    bucket: Container, place: Store, large: Path
) -> None:
    sent = 0

    def stop(nbytes: int) -> None:
        nonlocal sent
        sent += nbytes
        if sent > 3 * PART:
            raise Stopped

    place.put({"other": b"1"})
    with pytest.raises(Stopped):
        place.upload(NAME, large, stop)
    place.abandon_uploads([NAME, "never-begun", "other"])
    assert bucket.contents("p/") == {"other": b"1"}


@pytest.mark.parametrize("kind", ["503", "cut", "cut answer", "lost"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_request_of_an_upload_goes_wrong(
    place: Store, proxy: Proxy, bucket: Container, large: Path, kind: str, number: int, soak: bool
) -> None:
    """One of the first three writing requests fails, and the upload or a later one succeeds."""
    if (kind, number) not in ONE_GOES_WRONG and not soak:
        pytest.skip("each kind, and each request, once: every pair with --soak")
    left = [number]

    def choose(method: str, path: str) -> str | None:
        if method in ("PUT", "POST"):
            left[0] -= 1
        return kind if method in ("PUT", "POST") and left[0] == 0 else None

    proxy.choose = choose
    for _ in range(3):
        try:
            place.upload(NAME, large, ignore)
            break
        except StoreError as error:
            assert not error.denied
    place.abandon_uploads([NAME])
    assert bucket.contents("p/") == {NAME: large.read_bytes()}
    assert bucket.unfinished_uploads() == []


# Errors


@pytest.mark.parametrize("kind", ["503", "cut", "lost", "cut answer"])
def test_an_exclusive_write_whose_answer_is_lost(
    place: Store, proxy: Proxy, bucket: Container, kind: str
) -> None:
    """A write without an answer is recognised by its content, even if the caller repeats it."""
    assert not place.lease_obstacle()

    def done(do: Callable[[], bool]) -> bool:
        proxy.once(kind, "POST" if bucket.url.startswith("gs") else "PUT", "")
        try:
            return do()
        except StoreError as error:
            assert not error.denied
            return do()

    assert done(lambda: place.put_if_absent("lease", b"mine"))
    assert done(lambda: place.put_if_unchanged("lease", b"mine 2", b"mine"))
    assert sum(proxy.wrong.values()) == 2
    assert place.get("lease") == b"mine 2"
    assert not open_store(place.url).put_if_absent("lease", b"other")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_whether_it_can_hold_a_lease_is_asked_again_if_an_answer_is_lost(
    place: Store, proxy: Proxy, bucket: Container, number: int
) -> None:
    method, left = "POST" if bucket.url.startswith("gs") else "PUT", [number]

    def choose(called: str, path: str) -> str | None:
        left[0] -= called == method
        return "lost" if called == method and left[0] == 0 else None

    proxy.choose = choose
    try:
        place.lease_obstacle()
    except StoreError as error:
        assert not error.denied
    assert place.lease_obstacle() == ""
    assert proxy.wrong["lost"] == 1
    assert place.list() == {}


def test_a_bucket_that_is_not_there_fails_for_good(bucket: Container) -> None:
    missing = open_store(bucket.url.replace("container", "no-such") + "/p")
    for do in (missing.list, lambda: missing.put({"a": b"1"})):
        with pytest.raises(StoreError, match="cannot be used: HTTP 404") as error:
            do()
        assert error.value.denied


def test_denied_access_fails_for_good(place: Store, proxy: Proxy) -> None:
    proxy.choose = lambda method, path: "403"
    with pytest.raises(StoreError, match="denies access: HTTP 403") as error:
        place.list()
    assert error.value.denied


def test_a_process_that_was_forked_has_a_client_of_its_own(url: str, bucket: Container) -> None:
    store = open_store(url)
    assert isinstance(store, BucketStore)
    store.put({"a": b"1"})
    objects = store._client._objects  # type: ignore[attr-defined]
    before = objects.api()
    child = os.fork()
    if not child:
        try:
            os._exit(0 if store.get("a") == b"1" and objects.api() is not before else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("a") == b"1"


@pytest.mark.parametrize("scheme, extra", [("gs", "google"), ("az", "azure")])
def test_without_the_library_it_is_said_how_to_install_it(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=rf"pip install 'resumerge\[{extra}\]'"):
        open_store(f"{scheme}://bucket/p")


@pytest.mark.parametrize("cloud", ["az"], indirect=True)
@pytest.mark.parametrize("how", ["AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"])
def test_azure_without_a_connection_string(
    cloud: Cloud,
    bucket: Container,
    url: str,
    large: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    token = generate_container_sas(
        ACCOUNT,
        bucket.name,
        account_key=SECRET,
        permission=ContainerSasPermissions(read=True, write=True, delete=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", f"{cloud.endpoint}/{ACCOUNT}")
    with pytest.raises(StoreError, match="no usable credentials"):
        open_store(url).list()
    monkeypatch.setenv(how, token if how.endswith("TOKEN") else SECRET)
    store = open_store(url)
    assert store.lease_obstacle() == ""
    store.upload(NAME, large, ignore)
    assert store.rename(NAME, "kept")
    assert bucket.contents("p/") == {"kept": large.read_bytes()}


# Runs


@pytest.mark.parametrize("then_delete", [False, True])
def test_killed_at_requests(
    merges: Merges, reference: dict[str, bytes], then_delete: bool, soak: bool
) -> None:
    if then_delete and not soak:
        pytest.skip("S3 is enough for every day: the other clouds with --soak")
    killed(merges, reference, then_delete, soak)


def test_a_server_that_fails_now_and_then(
    merges: Merges, cloud: Cloud, reference: dict[str, bytes], soak: bool
) -> None:
    fails(merges, cloud, reference, soak)


def test_one_machine_after_the_other(
    bucket: Container,
    url: str,
    new: Callable[[], Machine],
    reference_of_machines: dict[str, bytes],
) -> None:
    first, second = new(), new()
    go_on_with(first, second, url)
    there = bucket.contents("p/")
    there.pop(".resumerge/done.json")
    assert files_of(second.out) == reference_of_machines == there
    assert bucket.unfinished_uploads() == []
    bucket.put("p/model-00002-of-00008.safetensors", b"damaged")
    out, err = second.call("verify", url, expect=75)
    assert "model-00002-of-00008.safetensors" in out + err


def test_no_secret_is_written_anywhere(
    cloud: Cloud,
    bucket: Container,
    url: str,
    new: Callable[[], Machine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that succeeds, a refused one and an unreachable server leave no secret anywhere."""
    machine = new()
    log = machine.folder / "log"
    chatty = {"RESUMERGE_LOG": f"debug:{log}"}
    process = machine.begin(url, "-vv", **chatty)
    said = [*process.communicate()]
    assert process.returncode == 0, said
    said += machine.call("status", url, "-vv", **chatty)
    said += machine.call("status", "--html", "page.html", **chatty)
    scheme = url.partition("://")[0]
    said += machine.call("resume", f"{scheme}://me:{SECRET[:20]}@x/y", expect=2, **chatty)
    with before(cloud.endpoint) as proxy:
        proxy.choose = lambda method, path: "403"
        process = machine.begin(f"{url}-2", "-vv", **chatty, **cloud.env(proxy.endpoint))
        said += process.communicate()
        assert process.returncode == 2, said
    for name, value in cloud.env("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match="cannot be reached") as unreachable:
        open_store(url).list()
    said += traceback.format_exception(unreachable.value)
    files = [path for path in machine.folder.rglob("*") if path.is_file()]
    assert log in files
    for path in files:
        assert SECRET[:20].encode() not in path.read_bytes(), path
    assert all(SECRET[:20].encode() not in data for data in bucket.contents().values())
    assert SECRET[:20] not in "".join(said)


def test_without_credentials_nothing_is_written(
    url: str, new: Callable[[], Machine], bucket: Container
) -> None:
    machine = new()
    nobody = {
        "STORAGE_EMULATOR_HOST": "",
        "AZURE_STORAGE_CONNECTION_STRING": "",
        "CLOUDSDK_CONFIG": str(machine.folder),
        "NO_GCE_CHECK": "true",
    }
    process = machine.begin(url, **nobody)
    _, err = process.communicate()
    assert process.returncode == 2, err
    assert "no usable credentials" in err
    assert not machine.out.exists()
    assert bucket.contents() == {}
