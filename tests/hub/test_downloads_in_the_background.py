"""Promise: downloads in the background run in order, in space reserved for them, until they are
stopped."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from hub_models import ref, shard, sharded
from huggingface_hub import constants
from loopback_hub import Hub
from waiting import HANGS_SECONDS, wait_until

from resumerge.errors import Resumable, ResumergeError
from resumerge.host.machine import FREE_BESIDE_DOWNLOADS
from resumerge.hub.file import HubFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source
from resumerge.sources.remote import prefetch
from resumerge.sources.remote.files import ensure_cached, fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model
from resumerge.sources.remote.prefetch import Prefetcher

COUNT = 4
FILES = [shard(number, COUNT) for number in range(1, COUNT + 1)]


@pytest.fixture
def source(hub: Hub) -> Source:
    """Return a model of four files of 400 kB, of which no byte has been downloaded."""
    hub.commit("org/model", sharded(COUNT, numel=200_000))
    source = open_hub_model(ref("org/model"))
    hub.forget_requests()
    return source


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataCache:
    return MetadataCache(tmp_path / "state")


def until_all_are_ready(fetcher: Prefetcher, count: int) -> None:
    while fetcher.ready_count < count:
        fetcher.wait(10)


def failure(fetcher: Prefetcher) -> ResumergeError:
    """Return the error with which the downloads end."""
    with pytest.raises(ResumergeError) as caught:
        while True:
            fetcher.wait(10)
    return caught.value


def of_a_disk(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cache's disk have so many free bytes, besides those that downloads leave."""
    monkeypatch.setattr(prefetch, "free_bytes", lambda folder: FREE_BESIDE_DOWNLOADS + free)


def test_two_downloads_are_not_promised_the_same_space(
    hub: Hub, source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = source.files[FILES[0]].size
    of_a_disk(size + size // 2, monkeypatch)
    hub.fail(hub.blob_of("org/model", FILES[0]).sha256, stall_after=1000, times=None)
    with Prefetcher([(source, name) for name in FILES[:2]], metadata) as fetcher:
        stopped = failure(fetcher)
        hub.over.set()
    assert isinstance(stopped, Resumable) and stopped.reason == "disk_full"
    assert FILES[1] in str(stopped) and "add --evict" in str(stopped)
    assert FILES[1] not in hub.files_served()


def test_space_for_each_of_them_is_enough(
    source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_disk(2 * source.files[FILES[0]].size, monkeypatch)
    with Prefetcher([(source, name) for name in FILES], metadata) as fetcher:
        until_all_are_ready(fetcher, COUNT)


def test_a_download_that_was_begun_needs_only_the_rest(
    source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = remote_file(source, FILES[0])
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    file.partial.write_bytes(sharded(COUNT, numel=200_000)[FILES[0]][:300_000])
    needed: list[int] = []
    ensure_cached(file, metadata, reserve=needed.append)
    assert needed == [file.size - 300_000]


def test_what_an_earlier_download_brought_is_progress(
    source: Source, metadata: MetadataCache
) -> None:
    """A download that continues an earlier one counts the bytes on the disk as done."""
    file = remote_file(source, FILES[0])
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    file.partial.write_bytes(sharded(COUNT, numel=200_000)[FILES[0]][:300_000])
    done: list[int] = []

    def on_start(file: HubFile, inode: int) -> None:
        assert fetcher.progress is not None
        done.append(fetcher.progress.bytes_done)

    fetcher = Prefetcher([(source, FILES[0])], metadata, on_start=on_start)
    with fetcher:
        until_all_are_ready(fetcher, 1)
    assert done == [300_000]


def test_while_another_arrives_there_may_be_space_later(
    hub: Hub, source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has no work until the other file arrives; it then merges and evicts that file."""
    of_a_disk(source.files[FILES[0]].size, monkeypatch)
    asked, started = list[bool](), list[str]()

    def reserved_bytes(blocked: bool, cache: Path) -> int:
        asked.append(blocked)
        return 0

    def on_start(file: HubFile, inode: int) -> None:
        started.append(file.name)

    wanted = [(source, name) for name in FILES[:2]]
    hub.fail(hub.blob_of("org/model", FILES[0]).sha256, stall_after=1000, times=None)
    fetcher = Prefetcher(
        wanted, metadata, evicting=True, on_start=on_start, reserved_bytes=reserved_bytes
    )
    fetcher.ready_count_when_blocked = 0
    with fetcher:
        while len(asked) < 4 or not started:  # the first one has its space before it starts
            fetcher.wait(0.1)
        assert all(asked)
        assert started == FILES[:1]
        hub.over.set()


def test_where_files_are_evicted_a_download_waits_for_space(
    source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output's share of the disk stays free as long as the caller has work."""
    of_a_disk(10**9, monkeypatch)
    asked: list[bool] = []
    looked = threading.Event()
    reserved = [10**12]

    def reserved_bytes(blocked: bool, cache: Path) -> int:
        asked.append(blocked)
        looked.set()
        return reserved[0]

    wanted = [(source, FILES[0])]
    with Prefetcher(wanted, metadata, evicting=True, reserved_bytes=reserved_bytes) as fetcher:
        assert looked.wait()
        fetcher.wait(1)
        assert fetcher.ready_count == 0
        assert not any(asked), "the caller has work"
        reserved[0] = 0
        until_all_are_ready(fetcher, 1)
    assert fetcher.is_ready(source, FILES[0])


def test_where_nothing_is_evicted_the_output_has_its_space_already(
    source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_disk(2 * source.files[FILES[0]].size, monkeypatch)
    wanted = [(source, name) for name in FILES]
    with Prefetcher(wanted, metadata, reserved_bytes=lambda blocked, cache: 10**12) as fetcher:
        until_all_are_ready(fetcher, COUNT)


def test_where_nothing_can_free_any_the_run_stops(
    source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_disk(0, monkeypatch)
    wanted = [(source, FILES[0])]
    with Prefetcher(wanted, metadata, evicting=True) as fetcher:
        fetcher.ready_count_when_blocked = (
            1  # a caller that has seen another number of files than is ready
        )
        fetcher.wait(0.5)
        fetcher.ready_count_when_blocked = 0
        stopped = failure(fetcher)
    assert isinstance(stopped, Resumable) and stopped.reason == "disk_full"
    assert "Downloads that are no longer needed were already deleted" in str(stopped)


def test_the_most_urgent_comes_first_and_is_named_once(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    order = [FILES[2], FILES[0], FILES[2], FILES[3], FILES[1]]
    started: list[str] = []

    def on_start(file: HubFile, inode: int) -> None:
        started.append(file.name)

    hub.fail(hub.blob_of("org/model", FILES[0]).sha256, stall_after=1000, times=None)
    with Prefetcher([(source, n) for n in order], metadata, on_start=on_start) as fetcher:
        until_all_are_ready(fetcher, 3)
        wait_until(lambda: FILES[0] in started)  # it has its space before, for which others wait
        assert not fetcher.is_ready(source, FILES[0])
        progress = fetcher.progress
        hub.over.set()
    assert progress is not None
    assert progress.bytes_total == sum(file.size for file in source.files.values())
    assert progress.bytes_done < progress.bytes_total
    assert sorted(started) == sorted(FILES)
    assert started.index(FILES[2]) < started.index(FILES[3]) < started.index(FILES[1])


def test_what_is_there_already_is_no_progress(source: Source, metadata: MetadataCache) -> None:
    fetch(source, FILES[:3], metadata)
    with Prefetcher([(source, name) for name in FILES], metadata) as fetcher:
        assert fetcher.progress is not None
        assert fetcher.progress.bytes_total == source.files[FILES[3]].size
        until_all_are_ready(fetcher, COUNT)
        assert fetcher.progress.bytes_done == fetcher.progress.bytes_total
    with Prefetcher([(source, name) for name in FILES], metadata) as fetcher:
        until_all_are_ready(fetcher, COUNT)
        assert fetcher.progress is None


def test_what_arrives_is_ready_though_another_file_cannot_be_had(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    hub.fail(hub.blob_of("org/model", FILES[1]).sha256, status=403, times=None)
    with Prefetcher([(source, name) for name in FILES[:2]], metadata) as fetcher:
        stopped = failure(fetcher)
        wait_until(lambda: fetcher.is_ready(source, FILES[0]))
        assert not fetcher.is_ready(source, FILES[1])
    assert isinstance(stopped, Resumable), "the run has begun"
    assert stopped.reason == "source_unavailable" and "denied access" in str(stopped)


def test_at_the_end_downloads_are_cut_off_and_what_was_set_is_set_back(
    hub: Hub, source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself would wait for minutes for a connection that stalls."""
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 600)
    before = sys.getswitchinterval()
    hub.fail("/cdn/", stall_after=1000, times=None)
    partial = remote_file(source, FILES[0]).partial
    with Prefetcher([(source, FILES[0])], metadata) as fetcher:
        assert sys.getswitchinterval() < before
        wait_until(lambda: partial.exists() and partial.stat().st_size)
        [thread] = fetcher._threads
    thread.join(HANGS_SECONDS)
    assert not thread.is_alive()
    assert sys.getswitchinterval() == before
    assert 0 < partial.stat().st_size < source.files[FILES[0]].size
    hub.over.set()
