"""Promise: with `--stream` a model on the Hub is read by ranges and never stored, and the address
of a file is requested from the Hub now and then, not each time."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from hub_models import shard
from huggingface_hub import constants
from loopback_hub import Hub
from merges import Place, layered, output
from waiting import HANGS_SECONDS

from resumerge.errors import Resumable
from resumerge.hub import http
from resumerge.recipe.types import ModelRef
from resumerge.remote import range_reader
from resumerge.remote.file import RemoteFile
from resumerge.remote.range_reader import RangeReader
from resumerge.retry import Backoff
from resumerge.sources.remote.files import remote_file
from resumerge.sources.remote.hub import open_hub_model

WEIGHTS = "model.safetensors"


@pytest.fixture
def models(hub: Hub) -> list[dict[str, bytes]]:
    """Commit two models, each to a repo, and return their files."""
    found = [layered(seed, shards=1, numel=3_000_000, tensors=3) for seed in (1, 2)]
    for name, files in zip(("org/math", "org/code"), found):
        hub.commit(name, files)
    return found


def served(hub: Hub) -> int:
    """Return the number of bytes of weight files that the Hub sent."""
    return sum(n for name, n in hub.files_served().items() if name.endswith(".safetensors"))


@pytest.fixture
def calm(hub: Hub, models: list[dict[str, bytes]], tmp_path: Path) -> dict[str, bytes]:
    """Return the output of a run that downloads."""
    place = Place(hub, tmp_path / "calm")
    place.call("run", "merge.yaml", "out")
    return output(tmp_path / "calm" / "out")


def test_the_same_bytes_and_nothing_stored(
    hub: Hub, models: list[dict[str, bytes]], calm: dict[str, bytes], tmp_path: Path
) -> None:
    """The output has the same bytes even if responses are cut off, or are errors."""
    place = Place(hub, tmp_path / "place")
    plan = place.document("plan", "merge.yaml", "--stream")
    hub.forget_requests()
    place.call("run", "merge.yaml", "out", "--stream")
    assert served(hub) == plan["download"]["bytes"] == plan["download"]["streamed_bytes"]
    data = [r for r in hub.requests if r.path.startswith("/cdn/") and r.method == "GET"]
    assert len(data) == 12, "of two files"
    assert {request.authorization for request in data} == {None}
    assert not any(path.stat().st_size > 10_000 for path in place.folder.glob("hf/**/blobs/*"))
    assert output(place.folder / "out") == calm

    hub.fail("/cdn/", method="GET", status=503, times=2)
    hub.fail("/cdn/", method="GET", cut_after=100_000, times=3)
    hub.fail("/resolve/", status=429, headers={"Retry-After": "1"})
    place.call("run", "merge.yaml", "again", "--stream")
    assert output(place.folder / "again") == calm


# In this process


def file_of(hub: Hub) -> RemoteFile:
    hub.commit("org/one", {"config.json": b"{}", WEIGHTS: layered(1, shards=1)[shard(1, 1)]})
    http._redirects.clear()
    return remote_file(open_hub_model(ModelRef("org/one", "org/one")), WEIGHTS)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses before retries short."""
    monkeypatch.setattr(range_reader, "DOWNLOAD", Backoff(first=0.01, longest=0.02, retries=2))


def read(file: RemoteFile, start: int, stop: int) -> bytes:
    reader, buffer = RangeReader(), bytearray(stop - start)
    try:
        reader.fill(file, start, memoryview(buffer))
    finally:
        reader.close()
    return bytes(buffer)


def test_a_range_goes_on_after_the_bytes_that_arrived(hub: Hub, quick: None) -> None:
    file = file_of(hub)
    hub.forget_requests()
    hub.fail("/cdn/", method="GET", cut_after=150_000, times=2)
    assert read(file, 1000, 390_000) == hub.blob_of("org/one", WEIGHTS).data[1000:390_000]
    assert served(hub) < 389_000 + 2 * 65_536


def test_an_output_is_proven_from_the_hub_and_nothing_is_stored(
    hub: Hub, models: list[dict[str, bytes]], tmp_path: Path
) -> None:
    """The commit is that of the run, even if the branch has moved since."""
    place = Place(hub, tmp_path / "place")
    place.call("run", "merge.yaml", "out", "--stream")
    hub.commit("org/code", layered(3, shards=1, numel=3_000_000, tensors=3))
    hub.forget_requests()
    found = place.document("verify", "out", "--sources", "--all")["sources"]
    assert not found["differing"] and found["blocks"]["compared"] == found["blocks"]["committed"]
    assert served(hub) >= 2 * 18_000_000
    assert not any(path.stat().st_size > 10_000 for path in place.folder.glob("hf/**/blobs/*"))


def test_the_hub_is_asked_again_where_a_file_is_when_the_address_expires(
    hub: Hub, quick: None
) -> None:
    file = file_of(hub)
    data = hub.blob_of("org/one", WEIGHTS).data
    for expired in (False, True, False):
        if expired:
            hub.fail("/cdn/", method="GET", status=403)
        hub.forget_requests()
        assert read(file, 1000, 2000) == data[1000:2000]
        places = Counter(request.path.split("/")[1] for request in hub.requests)
        assert places == ({"cdn": 2, "org": 1} if expired else {"cdn": 1})


def test_the_token_goes_to_the_hub_alone_also_where_a_file_is_known_to_be(
    hub: Hub, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's address is requested from the Hub again after `REDIRECT_SECONDS`."""
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    monkeypatch.setattr(http, "REDIRECT_SECONDS", 300.0)
    file = file_of(hub)
    hub.forget_requests()
    for _ in range(2):
        read(file, 1000, 2000)
    monkeypatch.setattr(http, "REDIRECT_SECONDS", 0.0)
    http._redirects.clear()
    for _ in range(2):
        read(file, 1000, 2000)
    sent = Counter((request.path.split("/")[1], request.authorization) for request in hub.requests)
    assert sent == {("cdn", None): 4, ("org", "Bearer hf_abcdefghijklmnopqrstuvwxyz"): 2}
    encodings = {request.headers["Accept-Encoding"] for request in hub.requests}
    assert encodings == {"identity"}, "a range of it is one of the file"


def test_whole_files_in_place_of_ranges_are_told(hub: Hub, quick: None) -> None:
    file = file_of(hub)
    assert read(file, 0, file.size) == hub.blob_of("org/one", WEIGHTS).data
    hub.ranges = False
    assert read(file, 0, file.size) == hub.blob_of("org/one", WEIGHTS).data
    with pytest.raises(Resumable, match=r"ignores which bytes .* Resume with --evict") as stopped:
        read(file, 1000, 2000)
    assert stopped.value.reason == "source_unavailable"


@pytest.mark.parametrize(
    "says", [{"Content-Range": "bytes 0-999/400000"}, {"Content-Encoding": "gzip"}]
)
def test_another_range_is_not_taken(hub: Hub, quick: None, says: dict[str, str]) -> None:
    file = file_of(hub)
    hub.fail("/cdn/", method="GET", says=says, times=None)
    with pytest.raises(Resumable) as stopped:
        read(file, 1000, 2000)
    assert stopped.value.reason == "network"


def test_a_hub_that_is_away_is_given_up_for_now(hub: Hub, quick: None) -> None:
    file = file_of(hub)
    hub.gone = True
    with pytest.raises(Resumable) as stopped:
        read(file, 1000, 2000)
    assert stopped.value.reason == "network" and "cannot be reached" in str(stopped.value)


def test_who_closes_the_reader_does_not_wait_for_the_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub sends a few bytes, and then no more."""
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 600)
    file = file_of(hub)
    hub.fail("/cdn/", method="GET", stall_after=10, times=None)

    def check() -> None:
        if reader.requests:
            raise InterruptedError

    reader = RangeReader(check)
    with pytest.raises(InterruptedError):
        reader.fill(file, 0, memoryview(bytearray(1000)))
    begun = [thread for thread in threading.enumerate() if thread.name.startswith("range ")]
    closing = threading.Thread(target=reader.close, daemon=True)
    closing.start()
    for thread in [closing, *begun]:
        thread.join(HANGS_SECONDS)
        assert not thread.is_alive()
