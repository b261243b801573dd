"""Promise: a check reads every cached file again, reports its state, and records it for runs."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest
from hub_models import CONFIG, ref, shard, sharded
from loopback_hub import Hub

from resumerge.documents.cache_check import CacheReport, check_cache, repair_cache
from resumerge.errors import InputError, Resumable
from resumerge.hub.file import HubFile
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote import files as hub_files
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model

FIRST, SECOND = shard(1, 2), shard(2, 2)


class Cached:
    """A repo of two shards, all of whose files are cached."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        hub.commit("org/model", sharded(2))
        self.source = open_hub_model(ref("org/model"))
        self.options = Options(state_dir=folder / "state")
        self.metadata = MetadataCache(RunStore(self.options.state_dir).folder)
        fetch(self.source, self.source.files, self.metadata)

    def file(self, name: str) -> HubFile:
        return remote_file(self.source, name)

    def flip(self, name: str) -> None:
        """Change a byte of a file, but not its modification time."""
        path = self.file(name).blob
        stat, data = path.stat(), bytearray(path.read_bytes())
        data[-1] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def verdict(self, name: str) -> bool | None:
        file = self.file(name)
        return self.metadata.verdict(file.blob, file.etag)


@pytest.fixture
def cached(hub: Hub, tmp_path: Path) -> Cached:
    return Cached(hub, tmp_path)


def states(report: CacheReport) -> dict[str, str]:
    return {file.file: file.state for file in report.files}


def test_each_file_is_told_and_its_state_is_noted(cached: Cached) -> None:
    seen: list[str] = []
    report = check_cache("org/model", cached.options, seen.append)
    assert report.intact and report.notes == []
    assert {FIRST, SECOND, "config.json"} <= states(report).keys() == set(seen)
    first = next(file for file in report.files if file.file == FIRST)
    assert asdict(first) == {
        "model": "org/model",
        "revision": cached.source.revision,
        "file": FIRST,
        "state": "intact",
        "bytes": len(sharded(2)[FIRST]),
        "path": str(cached.file(FIRST).pointer),
    }
    cached.flip(FIRST)
    found = check_cache("org/model", cached.options)
    assert states(found) == {**states(report), FIRST: "damaged"} and not found.intact
    assert cached.verdict(FIRST) is False, "the next run fetches it"
    assert cached.verdict(SECOND) is True
    cached.flip(FIRST)
    assert check_cache("org/model", cached.options).intact
    assert cached.verdict(FIRST) is True


def test_a_verdict_of_before_is_not_believed(cached: Cached) -> None:
    """A check reads every file again, whatever verdict was recorded."""
    for name, verdict in ((FIRST, False), (SECOND, True)):
        file = cached.file(name)
        if verdict:
            cached.flip(name)
        cached.metadata.record_verdict(file.blob, file.etag, verdict)
    found = states(check_cache("org/model", cached.options))
    assert (found[FIRST], found[SECOND]) == ("intact", "damaged")


def test_a_repair_fetches_what_is_damaged_or_missing_and_nothing_else(
    hub: Hub, cached: Cached
) -> None:
    cached.flip(FIRST)
    config = next(
        file
        for file in check_cache("org/model", cached.options).files
        if file.file == "config.json"
    )
    Path(config.path).resolve().unlink()
    before = cached.file(SECOND).inode
    hub.forget_requests()
    seen: list[str] = []
    report = repair_cache("org/model", cached.options, seen.append)
    found = states(report)
    assert (found[FIRST], found["config.json"], found[SECOND]) == ("repaired", "repaired", "intact")
    assert report.intact and report.as_json()["intact"]
    assert set(hub.files_served()) == {FIRST, "config.json"}
    assert sorted(seen) == sorted([*found, FIRST, "config.json"]), "and again as it is fetched"
    assert cached.file(SECOND).inode == before
    assert cached.file(FIRST).blob.read_bytes() == sharded(2)[FIRST]
    assert Path(config.path).read_bytes() == CONFIG
    assert cached.verdict(FIRST) is True
    assert check_cache("org/model", cached.options).intact


def test_a_missing_file_is_told_with_the_place_where_it_would_be(cached: Cached) -> None:
    cached.file(FIRST).blob.unlink()
    report = check_cache("org/model", cached.options)
    assert states(report)[FIRST] == "missing" and not report.intact
    assert next(f.path for f in report.files if f.file == FIRST) == str(cached.file(FIRST).pointer)


def test_a_disk_that_fails_while_repairing_can_be_tried_again(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached.flip(FIRST)

    def fail(*words: object, **more: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(hub_files, "download", fail)
    with pytest.raises(Resumable, match="then repair again"):
        repair_cache("org/model", cached.options)


def test_only_the_revision_that_is_named_is_looked_at(hub: Hub, cached: Cached) -> None:
    first = cached.source.revision
    changed = {**sharded(2), SECOND: sharded(2)[SECOND][:-1] + b"?"}
    hub.commit("org/model", changed)
    newer = open_hub_model(ref("org/model"))
    fetch(newer, [FIRST], cached.metadata)
    assert newer.revision != first
    one = check_cache(f"org/model@{newer.revision}", cached.options)
    assert {file.revision for file in one.files} == {newer.revision}
    assert SECOND not in states(one)
    with pytest.raises(InputError, match="the cache has") as refused:
        check_cache("org/model@" + "e" * 40, cached.options)
    assert str(first) in str(refused.value) and str(newer.revision) in str(refused.value)


def test_what_lies_beside_the_reference_of_a_stage_is_checked_too(
    hub: Hub, cached: Cached, tmp_path: Path
) -> None:
    """The tokenizer of a stage's reference may decide the rows of the result."""
    hub.commit("org/first", {**sharded(2), "tokenizer.json": b"{}"})
    recipe = tmp_path / "recipe.yaml"
    models = "[{model: org/first, parameters: {weight: 1}}]"
    recipe.write_text(
        f"name: first\nmerge_method: linear\nmodels: {models}\n---\n"
        "merge_method: linear\nmodels:\n"
        "  - {model: org/model, parameters: {weight: 1}}\n"
        "  - {model: first, parameters: {weight: 1}}\n"
    )
    report = check_cache(str(recipe), cached.options)
    assert ("org/first", "tokenizer.json") in {(file.model, file.file) for file in report.files}
