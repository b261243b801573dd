"""Promise: small files are whole on the Hub, and those that it makes itself are nobody's."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import Hub
from repo_of_the_hub import REPO, URL
from store_conformance import Stopped

from resumerge.errors import InputError, Reason, Resumable, refuse
from resumerge.mirror.state import FOREIGN, NOTHING, read_state
from resumerge.mirror.stores.base import StoreError
from resumerge.mirror.stores.hub import HubStore
from resumerge.mirror.stores.hub_address import repo_of
from resumerge.mirror.stores.hub_client import hub_errors
from resumerge.mirror.stores.hub_uploads import FileHashes


@pytest.fixture
def store(hub: Hub) -> HubStore:
    """Return the store of a repo that does not exist yet."""
    return HubStore(URL)


def test_a_file_that_is_small_for_the_hub_is_committed_whole(
    hub: Hub, store: HubStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of pieces in which the file is read makes no difference."""
    monkeypatch.setattr("resumerge.mirror.stores.upload_reader.REPORT_BYTES", 100)
    path, moved = tmp_path / "tokenizer.json", list[int]()
    path.write_bytes(b"{}" * 500)
    sha256 = store.upload("tokenizer.json", path, moved.append)
    store.put({})
    assert hub.contents(REPO) == {"tokenizer.json": b"{}" * 500}
    assert sum(moved) == 1000 and max(moved) == 100
    moved.clear()
    assert store.sha256("tokenizer.json", moved.append) == sha256
    assert sum(moved) == 1000, "it is read to be hashed"


def test_of_a_local_file_each_content_is_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def sha256_of(path: Path, check: Any) -> str:
        read.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr("resumerge.mirror.stores.hub_uploads.sha256_of", sha256_of)
    hashes, path, other = FileHashes(), tmp_path / "a", tmp_path / "folder" / "a"
    other.parent.mkdir()

    def is_right(file: Path) -> bool:
        expected = hashlib.sha256(file.read_bytes()).hexdigest()
        return hashes.sha256(file, lambda: None) == expected

    for number, file in enumerate((path, other)):
        file.write_bytes(b"%d" % number)
        os.utime(file, (1e9, 1e9))
        assert is_right(file) and is_right(file)
    other.replace(path)
    assert is_right(path), "another file of the same size and time"
    path.write_bytes(b"2")
    assert is_right(path), "the same file at another time"
    assert read == [path, other, path, path]


def test_what_the_hub_makes_in_a_new_repo_is_nobodys(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    hub.commit(
        REPO, {".gitattributes": b"*.bin filter=lfs", "README.md": b"---\nlicense: mit\n---\n"}
    )
    assert read_state(store, tmp_path / "ledger.db").kind == NOTHING
    hub.commit(REPO, {"config.json": b"{}"})
    assert read_state(store, tmp_path / "ledger.db").kind == FOREIGN


def test_what_is_put_and_removed_at_once_is_there(hub: Hub, store: HubStore) -> None:
    store.put({"a": b"1", "b": b"1"})
    store.put({"a": b"2"}, remove=["a", "b", "b"])
    assert hub.contents(REPO) == {"a": b"2"}


def test_an_upload_can_be_stopped_before_anything_is_asked(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    """The callback can stop the upload while the file is hashed, when no byte moves."""
    path = tmp_path / "shard.safetensors"
    path.write_bytes(bytes(1000))

    def stop(nbytes: int) -> None:
        assert not nbytes
        raise Stopped

    with pytest.raises(Stopped):
        store.upload("shard.safetensors", path, stop)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("error", "text", "denied"),
    [
        (Resumable(Reason.NETWORK, "no line\nmore of it"), "no line", False),
        (Resumable(Reason.SOURCE_UNAVAILABLE, "is busy"), "is busy", False),
        (refuse("The file is gated"), "refused a request for org/merged: The file is gated", True),
        (Resumable(Reason.MIRROR_TAKEN_OVER, "gone"), None, False),
    ],
    ids=["network", "busy", "refused", "taken over"],
)
def test_what_a_download_says_is_said_of_the_mirror(
    error: Exception, text: str | None, denied: bool
) -> None:
    """A temporary error can be retried, a refusal is a denial, and a lost mirror stops the run."""
    with pytest.raises(StoreError if text else type(error)) as caught, hub_errors(REPO):
        raise error
    if text is None:
        assert caught.value is error
        return
    assert isinstance(caught.value, StoreError) and caught.value.denied is denied
    assert str(caught.value).splitlines()[0].endswith(text) and "more of it" not in str(
        caught.value
    )


@pytest.mark.parametrize("status", [401, 403])
def test_a_page_of_a_network_in_between_is_no_denial(
    hub: Hub, store: HubStore, status: int
) -> None:
    store.put({"a": b"1"})
    page = {"Content-Type": "text/html; charset=utf-8"}
    hub.fail("/api/models", status=status, headers=page)
    with pytest.raises(StoreError, match=f"sent a web page: HTTP {status}") as caught:
        store.list()
    assert not caught.value.denied
    assert store.list()["a"] == 1


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("hf://org/name@branch", "remove @"),
        ("hf://buckets/org/name", "s3://NAME/prefix"),
        ("hf://datasets/org/name", "name a model repo"),
        ("hf://models/org/name", "name a model repo"),
        ("hf://spaces/org/name", "name a model repo"),
        ("hf://name", "name its account, too: hf://ACCOUNT/name"),
        ("hf://org/na me", "check the spelling"),
        ("org/name", "check the spelling"),
    ],
)
def test_who_writes_a_wrong_address_reads_what_to_write(url: str, fix: str) -> None:
    assert repo_of("hf://org/name") == repo_of("hf://org/name/") == "org/name"
    with pytest.raises(InputError) as refused:
        repo_of(url)
    [problem] = refused.value.problems
    assert (problem.where, problem.expected) == (url, "hf://org/name") and fix in problem.fix
