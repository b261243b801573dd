"""A download that was cut off requests the missing bytes, whatever servers make of the request."""

from __future__ import annotations

import hashlib
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from begun_downloads import CUT, MODEL, NAME, SIZE, begun, downloads, is_whole
from hub_models import CONFIG, ref, safetensors
from loopback_hub import Hub
from waiting import wait_until

from resumerge.errors import Resumable
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model


def test_the_next_process_asks_for_the_rest(hub: Hub, tmp_path: Path) -> None:
    source = begun(hub, MetadataCache(tmp_path))
    there = remote_file(source, NAME).partial.stat().st_size
    fetch(source, [NAME], MetadataCache(tmp_path))
    assert is_whole(source)
    assert [(r.status, r.sent) for r in downloads(hub)] == [(206, SIZE - there)]
    assert not remote_file(source, NAME).partial.exists()


def test_without_records_of_the_server_too(hub: Hub) -> None:
    source = begun(hub)
    fetch(source, [NAME])
    assert is_whole(source)
    assert sum(r.sent for r in downloads(hub)) <= SIZE - CUT


def test_a_server_that_ignores_ranges_is_listened_to_from_the_start(
    hub: Hub, tmp_path: Path
) -> None:
    source = begun(hub, MetadataCache(tmp_path))
    hub.ranges = False
    fetch(source, [NAME], MetadataCache(tmp_path))
    assert is_whole(source)
    assert [r.status for r in downloads(hub)] == [200]


def test_a_file_that_the_server_calls_by_another_etag_comes_from_the_start(
    hub: Hub, tmp_path: Path
) -> None:
    source = begun(hub, MetadataCache(tmp_path))
    file = remote_file(source, NAME)
    file.partial.write_bytes(bytes(CUT))  # of a file that is no more
    MetadataCache(tmp_path).store_validator(file.partial, '"another"')
    fetch(source, [NAME], MetadataCache(tmp_path))
    assert is_whole(source)
    assert [r.status for r in downloads(hub)] == [200]


def test_a_part_that_is_damaged_costs_one_download(hub: Hub, sleeps: list[float]) -> None:
    source = begun(hub)
    partial = remote_file(source, NAME).partial
    partial.write_bytes(b"?" + partial.read_bytes()[1:])
    events: list[str] = []
    fetch(
        source,
        [NAME],
        callbacks=DownloadCallbacks(on_event=lambda kind, **data: events.append(kind)),
    )
    assert is_whole(source)
    assert events == ["download_damaged"]
    assert [r.status for r in downloads(hub)] == [206, 200]


def test_a_part_that_is_too_long_is_thrown_away(hub: Hub) -> None:
    source = begun(hub)
    remote_file(source, NAME).partial.write_bytes(bytes(SIZE + 1))
    fetch(source, [NAME])
    assert is_whole(source)


def test_a_part_that_is_whole_already_costs_nothing(hub: Hub) -> None:
    source = begun(hub)
    remote_file(source, NAME).partial.write_bytes(MODEL[NAME])
    fetch(source, [NAME])
    assert is_whole(source)
    assert downloads(hub) == []


def test_a_connection_that_is_cut_again_and_again_makes_its_way(
    hub: Hub, sleeps: list[float]
) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.forget_requests()
    hub.fail("/cdn/", cut_after=100_000, times=9)
    fetch(source, [NAME])
    assert is_whole(source)
    assert sum(r.sent for r in downloads(hub)) == SIZE
    assert set(sleeps) == {1}, "an attempt that brings bytes does not count as failed"


def test_a_server_that_stalls_is_left_and_asked_again(
    hub: Hub, sleeps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.forget_requests()
    hub.fail("/cdn/", stall_after=CUT)
    fetch(source, [NAME])
    assert is_whole(source)
    # On a busy machine the client may leave before the Hub has begun to answer.
    hub.over.set()
    wait_until(lambda: len(downloads(hub)) > 1)  # the first connection was left, another one made


def test_wrong_bytes_of_the_right_size_are_fetched_again(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", wrong_byte=CUT)
    events: list[dict[str, object]] = []
    fetch(
        source,
        [NAME],
        callbacks=DownloadCallbacks(on_event=lambda kind, **data: events.append(data)),
    )
    assert is_whole(source)
    assert events == [{"repo": "org/model", "file": NAME}]


def test_bytes_that_are_never_right_are_not_given_a_name(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", wrong_byte=CUT, times=None)
    with pytest.raises(Resumable) as caught:
        fetch(source, [NAME])
    assert caught.value.reason == "source_unavailable"
    assert hashlib.sha256(MODEL[NAME]).hexdigest() in str(caught.value)
    assert remote_file(source, NAME).content is None


def test_wrong_bytes_of_a_file_that_is_no_lfs_file(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", MODEL)
    hub.fail("config.json", wrong_byte=3)
    source = open_hub_model(ref("org/model"))
    assert (source.folder / "config.json").read_bytes() == CONFIG


def test_a_body_that_is_truncated_is_not_taken_for_the_file(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", short_by=10, times=2)
    fetch(source, [NAME])
    assert is_whole(source)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_kept_to(hub: Hub, sleeps: list[float], status: int) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", status=status, headers={"Retry-After": "7"})
    date = formatdate(time.time() + 50, usegmt=True)
    hub.fail("/cdn/", status=status, headers={"Retry-After": date})
    fetch(source, [NAME])
    assert is_whole(source)
    assert sleeps[0] == 7
    assert 30 < sleeps[1] <= 50


def test_a_server_that_asks_for_an_hour_is_not_waited_for(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", status=429, headers={"Retry-After": "3600"})
    with pytest.raises(Resumable):
        fetch(source, [NAME])
    assert sleeps == []


def test_two_processes_download_a_file_once(hub: Hub) -> None:
    import threading

    hub.commit("org/big", {"config.json": CONFIG, NAME: safetensors(["a"], 4_000_000)})
    source = open_hub_model(ref("org/big"))
    hub.forget_requests()
    threads = [threading.Thread(target=fetch, args=(source, [NAME])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(r.sent for r in downloads(hub)) == source.files[NAME].size


def test_what_huggingface_hub_cached_is_used(hub: Hub) -> None:
    from huggingface_hub import hf_hub_download

    hub.commit("org/model", MODEL)
    hf_hub_download("org/model", NAME)
    hub.forget_requests()
    source = open_hub_model(ref("org/model"))
    assert source.files[NAME].present
    fetch(source, [NAME])
    assert downloads(hub) == []


def test_what_was_fetched_is_a_cache_that_huggingface_hub_reads(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import hf_hub_download, scan_cache_dir

    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    fetch(source, [*source.files, *source.companions])
    scanned = scan_cache_dir(hub.home / "hub")
    assert not scanned.warnings
    [repo] = scanned.repos
    [revision] = repo.revisions
    assert (repo.repo_id, revision.commit_hash) == ("org/model", source.revision)
    assert revision.refs == {"main"}
    assert {f.file_name for f in revision.files} == set(MODEL) - {"README.md"}
    hub.forget_requests()
    path = hf_hub_download("org/model", NAME)
    assert Path(path).read_bytes() == MODEL[NAME]
    assert downloads(hub) == []
