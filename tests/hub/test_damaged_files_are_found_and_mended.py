"""A cached file whose bytes changed is found, and it alone is fetched again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hub_models import shard
from loopback_hub import Hub
from merges import COPIES, Place, layered, output


def flip(path: Path, at: int = 5000) -> None:
    """Change a byte of a file, but neither its size nor the time that programs can set."""
    stat = path.stat()
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([byte ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def states(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Return the state of each file that is not intact."""
    return {f["file"]: f["state"] for f in document["files"] if f["state"] != "intact"}


@pytest.fixture
def merged(hub: Hub, tmp_path: Path) -> Place:
    """Return a place where the models were merged to `out`."""
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed))
    place = Place(hub, tmp_path, COPIES)
    place.call("run", "merge.yaml", "out")
    return place


def test_found_by_the_check_and_mended_by_resume(hub: Hub, merged: Place) -> None:
    before = output(merged.folder / "out")
    assert states(merged.document("cache", "check", "merge.yaml")) == {}
    flip(merged.blob("org/math", shard(3, 8)))
    hub.forget_requests()

    found = merged.document("cache", "check", "merge.yaml", expect=75)
    assert states(found) == {shard(3, 8): "damaged"}
    assert hub.files_served() == {}

    merged.call("resume", "out")
    assert hub.files_served() == {shard(3, 8): len(layered(1)[shard(3, 8)])}
    assert output(merged.folder / "out") == before
    [event] = merged.events("source_damaged")
    assert (event["model"], event["file"], event["units"]) == ("org/math", shard(3, 8), 2)
    assert states(merged.document("cache", "check", "merge.yaml")) == {}
    assert "already done" in merged.call("resume", "out").stderr


def test_mended_by_repair_and_the_run_is_mended_after(hub: Hub, merged: Place) -> None:
    flip(merged.blob("org/code", shard(1, 8)))
    merged.blob("org/code", "tokenizer.json").unlink(missing_ok=True)
    hub.forget_requests()
    repaired = merged.document("cache", "repair", "org/code")
    assert states(repaired) == {shard(1, 8): "repaired"}
    assert set(hub.files_served()) == {shard(1, 8)}
    merged.call("resume", "out")
    assert [event["units"] for event in merged.events("source_damaged")] == [2]


@pytest.mark.parametrize("touched", [True, False])
def test_damage_is_found_by_the_next_run_whatever_the_time_says(
    hub: Hub, merged: Place, touched: bool
) -> None:
    blob = merged.blob("org/math", shard(5, 8))
    flip(blob)
    if touched:
        os.utime(blob)
    config = merged.blob("org/math", "config.json")
    config.write_bytes(config.read_bytes()[:-3])
    hub.forget_requests()
    merged.call("run", "merge.yaml", "again")
    assert set(hub.files_served()) == {shard(5, 8), "config.json"}
    before, after = output(merged.folder / "out"), output(merged.folder / "again")
    assert before == after
    assert [event["file"] for event in merged.events("source_damaged")] == [shard(5, 8)]


def test_offline_trusts_nothing_unread_and_names_what_is_missing(hub: Hub, merged: Place) -> None:
    for name in (shard(5, 8), shard(6, 8)):
        flip(merged.blob("org/math", name))
        os.utime(merged.blob("org/math", name))
    stopped = merged.call("run", "merge.yaml", "again", "--offline", expect=75)
    assert f"missing: {shard(5, 8)} (damaged)" in stopped.stderr
    assert f"missing: {shard(6, 8)} (damaged)" in stopped.stderr
    assert shard(7, 8) not in stopped.stderr
    merged.call("resume")
    assert output(merged.folder / "again") == output(merged.folder / "out")

    merged.blob("org/code", shard(2, 8)).unlink()
    refused = merged.call("run", "merge.yaml", "third", "--offline", expect=2)
    assert f"missing: {shard(2, 8)}\n" in refused.stderr
    assert not (merged.folder / "third").exists()
    missing = merged.document("cache", "check", "merge.yaml", "--offline", expect=75)
    assert states(missing) == {shard(2, 8): "missing"}


def test_a_check_of_what_is_not_cached_is_refused(hub: Hub, merged: Place) -> None:
    told = merged.call("cache", "check", "org/x", expect=2).stderr
    assert "neither a recipe nor a model" in told
    assert str(merged.folder / "hf" / "hub") in told
    assert "models--" not in told
    told = merged.call("cache", "check", "org/math@nobranch", expect=2).stderr
    commit = hub.repos["org/math"].branches["main"]
    assert f"found:    nobranch; the cache has main, {commit}\n" in told
    assert merged.call("cache", "check", "absent.yaml", expect=2).stderr


def test_a_folder_in_a_files_place_is_named_and_left(hub: Hub, merged: Place) -> None:
    blob = merged.blob("org/code", shard(1, 8))
    blob.unlink()
    blob.mkdir()
    told = merged.call("cache", "repair", "org/code", expect=75).stderr
    assert str(blob) in told
    assert "then repair again" in told
    blob.rmdir()
    assert states(merged.document("cache", "repair", "org/code")) == {shard(1, 8): "repaired"}
