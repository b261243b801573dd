"""With --evict a disk that is too small for all inputs at once is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_models import shard
from loopback_hub import Hub
from loopback_sockets import bytes_on_the_way
from merges import COPIES, Place, layered, output
from small_disks import mounted
from waiting import wait_until

NUMEL = 1_000_000
SHARD = 4 * NUMEL
"""Bytes of a shard, without its header."""


@pytest.fixture
def filled(hub: Hub) -> Hub:
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed, numel=NUMEL))
    return hub


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk with room for five of the sixteen shards, and for what downloads leave free."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    with mounted(folder, 5 * SHARD + 17_000_000):
        yield folder


def weights(place: Place, larger_than: int = SHARD) -> set[Path]:
    """Return the large files in a place's cache."""
    blobs = Path(place.env["HF_HOME"]).glob("hub/*/blobs/*")
    return {path for path in blobs if path.stat().st_size > larger_than}


def test_a_disk_too_small_for_the_inputs(filled: Hub, small_disk: Path, tmp_path: Path) -> None:
    calm = Place(filled, tmp_path / "calm", COPIES)
    calm.call("run", "merge.yaml", "out")
    place = Place(filled, tmp_path / "small", COPIES, HF_HOME=str(small_disk))

    refused = place.call("run", "merge.yaml", "out", expect=2)
    assert "too small for the downloads" in refused.stderr
    assert "--evict" in refused.stderr

    filled.forget_requests()
    needed = 16 * SHARD
    for part in (0.3, 0.6):
        filled.allowance.give(int(0.3 * needed))
        process = place.start(
            *(["run", "merge.yaml", "out", "--evict"] if part == 0.3 else ["resume"])
        )
        wait_until(filled.allowance.is_spent, process)
        wait_until(lambda: not bytes_on_the_way(filled.url), process)  # they would come again
        process.kill()
        process.wait()
    filled.allowance.give(None)
    place.call("resume")

    assert output(place.folder / "out") == output(calm.folder / "out")
    served = {k: n for k, n in filled.files_served().items() if k.endswith(".safetensors")}
    assert sum(served.values()) < 1.05 * needed, "evicted files were fetched again"
    assert weights(place) == set()
    assert len(place.events("download_evicted")) == 16
    assert "already done" in place.call("resume").stderr


def test_what_was_there_before_stays(filled: Hub, tmp_path: Path) -> None:
    place = Place(filled, tmp_path, COPIES)
    place.call("run", "merge.yaml", "before")
    before = weights(place)
    gone = place.blob("org/math", shard(2, 8))
    gone.unlink()
    place.call("run", "merge.yaml", "after", "--evict")
    assert weights(place) == before - {gone}
    assert output(place.folder / "before") == output(place.folder / "after")


def test_a_file_that_another_program_put_there_since_stays(hub: Hub, tmp_path: Path) -> None:
    """The other program's file has the name and the content of the run's own download."""
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed))
    place = Place(hub, tmp_path, COPIES)
    place.call("run", "merge.yaml", "out")
    for name in (shard(1, 8), shard(2, 8)):
        blob = place.blob("org/math", name)
        another = blob.with_name("another")
        another.write_bytes(blob.read_bytes())
        another.replace(blob)
    merged = place.folder / "out" / "model.safetensors"
    merged.write_bytes(merged.read_bytes()[:-1] + b"?")
    place.call("verify", "out", expect=75)
    place.call("resume", "out", "--evict")
    assert {path.name for path in weights(place, larger_than=100_000)} == {
        place.blob("org/math", name).name for name in (shard(1, 8), shard(2, 8))
    }


def test_evicted_files_come_back_when_their_units_are_computed_again(
    filled: Hub, tmp_path: Path
) -> None:
    place = Place(filled, tmp_path, COPIES)
    place.call("run", "merge.yaml", "out", "--evict")
    before = output(place.folder / "out")
    merged = place.folder / "out" / "model.safetensors"
    data = bytearray(merged.read_bytes())
    data[-1] ^= 1
    merged.write_bytes(data)
    place.call("verify", "out", expect=75)
    filled.forget_requests()
    place.call("resume", "out")
    assert output(place.folder / "out") == before
    served = {k for k in filled.files_served() if k.endswith(".safetensors")}
    assert len(served) == 1, "of both models, the shard of the damaged tensor"
    assert weights(place) == set()


def test_no_room_even_so_says_what_is_needed(filled: Hub, small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(5 * SHARD))
    place = Place(filled, tmp_path / "small", COPIES, HF_HOME=str(small_disk))
    stopped = place.call("run", "merge.yaml", "out", "--evict", expect=75)
    assert "No disk space to download" in stopped.stderr
    (small_disk / "ballast").unlink()
    place.call("resume")
