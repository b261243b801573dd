"""Tokens: what is said where one is missing or may not write, and that none is ever shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import Hub
from repo_of_the_hub import REPO, SHARD, URL, nothing, shard

from resumerge.errors import InputError, Resumable
from resumerge.mirror.lease import Lease
from resumerge.mirror.stores.base import StoreError
from resumerge.mirror.stores.hub import HubStore

WRITER, READER = "hf_WriterSecret123", "hf_ReaderSecret456"


@pytest.fixture
def guarded(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Return a Hub with a private repo, to which this process's token may write."""
    hub.tokens = {WRITER: "write", READER: "read"}
    monkeypatch.setenv("HF_TOKEN", WRITER)
    HubStore(URL).put({"config.json": b"{}"})
    return hub


def changes(store: HubStore, folder: Path) -> list[Callable[[], Any]]:
    return [
        lambda: store.put({"a": b"1"}),
        lambda: store.put_if_absent("a", b"1"),
        lambda: store.upload(SHARD, shard(folder), nothing),
    ]


@pytest.mark.parametrize("token", [None, "hf_Wrong", READER])
def test_who_may_not_write_is_told_what_to_do(
    guarded: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str | None
) -> None:
    store = HubStore(URL)
    if token is None:
        monkeypatch.delenv("HF_TOKEN")
    else:
        monkeypatch.setenv("HF_TOKEN", token)
    for change in changes(store, tmp_path):
        with pytest.raises(StoreError, match="hf auth login") as caught:
            change()
        assert caught.value.denied
        assert "HF_TOKEN" in str(caught.value)
        said = "no token was sent" if token is None else "a token was sent"
        assert said in str(caught.value)
    assert guarded.contents(REPO) == {"config.json": b"{}"}


def test_a_permission_that_ends_while_a_run_goes_on(
    guarded: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = HubStore(URL)
    store.upload(SHARD, shard(tmp_path), nothing)
    guarded.tokens = {READER: "read"}
    with pytest.raises(StoreError) as caught:
        store.put({"a": b"1"})
    assert caught.value.denied
    guarded.tokens = {WRITER: "write"}
    store.put({"a": b"1"})
    assert guarded.contents(REPO).keys() == {"config.json", "a", SHARD}


@pytest.mark.parametrize("token", [None, READER])
def test_a_run_that_may_not_write_there_is_refused_at_its_beginning(
    guarded: Hub, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    if token is None:
        monkeypatch.delenv("HF_TOKEN")
    else:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(InputError, match="hf auth login") as caught:
        Lease.acquire(HubStore(URL), "run")
    assert caught.value.exit_code == 2
    assert "write" in caught.value.problems[0].fix


def test_a_reader_can_look(guarded: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", READER)
    assert HubStore(URL).get("config.json") == b"{}"


def test_a_signed_address_that_grew_too_old_is_no_lack_of_permission(
    guarded: Hub, tmp_path: Path
) -> None:
    guarded.fail("/cdn/upload/", status=403)
    store = HubStore(URL)
    with pytest.raises(StoreError) as caught:
        store.upload(SHARD, shard(tmp_path), nothing)
    assert not caught.value.denied
    store.upload(SHARD, shard(tmp_path), nothing)


def test_no_token_is_ever_shown(
    guarded: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str], sleeps: list[float]
) -> None:
    """No token and no signed address is in a message, a traceback, the output or the repo."""
    store, said = HubStore(URL), ""
    asks = [
        *changes(store, tmp_path),
        lambda: store.list(),
        lambda: store.get("config.json"),
        lambda: store.download("config.json", tmp_path / "c", nothing),
    ]
    for wrong in ({"status": 401}, {"status": 403}, {"status": 500}, {"cut_upload": 1}):
        for ask in asks:
            guarded.faults.clear()
            guarded.fail("/cdn/", times=1, **wrong)
            guarded.fail("/api/", times=1, **wrong)
            for _ in range(3):
                try:
                    ask()
                except StoreError as error:
                    said += str(error) + "".join(traceback.format_exception(error))
    guarded.faults.clear()
    store.put({})
    printed = capfd.readouterr()
    files = [blob.data for files in guarded.repos[REPO].commits.values() for blob in files.values()]
    everything = said + printed.out + printed.err + str(files)
    assert "HTTP 403" in said
    assert WRITER not in everything
    assert "secret" not in everything  # of the signed addresses
    assert any(WRITER in (request.authorization or "") for request in guarded.requests)
    assert all(not r.authorization for r in guarded.requests if "/cdn/upload/" in r.path)


def test_a_hub_that_asks_for_much_patience_at_the_beginning_is_come_back_to(
    hub: Hub, sleeps: list[float]
) -> None:
    hub.fail("/api/", status=429, headers={"Retry-After": "7"}, times=1)
    Lease.acquire(HubStore(URL), "run").release()
    assert 7.0 in sleeps
    hub.fail("/api/", status=429, headers={"Retry-After": "3600"}, times=None)
    sleeps.clear()
    with pytest.raises(Resumable, match="HTTP 429"):
        Lease.acquire(HubStore(URL), "run")
    assert sleeps == []
