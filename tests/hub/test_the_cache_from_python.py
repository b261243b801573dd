"""Promise: `cache_check` and `cache_repair` do what the commands of these names do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_models import ref, shard, sharded
from loopback_hub import Hub

import resumerge
from resumerge.documents.cache_check import CacheReport
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model

DAMAGED, MISSING = shard(2, 3), shard(3, 3)


@pytest.fixture
def source(hub: Hub) -> Source:
    """Return a model in the cache, of which one file is damaged and another missing."""
    hub.commit("org/model", sharded(3))
    source = open_hub_model(ref("org/model"))
    fetch(source, [*source.files, "config.json"])
    path = remote_file(source, DAMAGED).blob
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    remote_file(source, MISSING).blob.unlink()
    hub.forget_requests()
    return source


def states(report: CacheReport) -> dict[str, str]:
    return {file.file: file.state for file in report.files if file.state != "intact"}


def test_what_is_found_is_noted_in_the_state_folder(source: Source, tmp_path: Path) -> None:
    """The next run reads the verdict in the state folder."""
    report = resumerge.cache_check("org/model", state_dir=tmp_path / "state")
    assert states(report) == {DAMAGED: "damaged", MISSING: "missing"}
    assert not report.intact
    file = remote_file(source, DAMAGED)
    assert MetadataCache(tmp_path / "state").verdict(file.pointer, file.etag) is False


def test_only_what_is_damaged_or_missing_is_brought_again(
    hub: Hub, source: Source, tmp_path: Path
) -> None:
    report = resumerge.cache_repair("org/model", state_dir=tmp_path / "state")
    assert states(report) == {DAMAGED: "repaired", MISSING: "repaired"}
    assert report.intact
    assert set(hub.files_served()) == {DAMAGED, MISSING}
    assert {name: (source.folder / name).read_bytes() for name in source.files} == {
        name: data for name, data in sharded(3).items() if name in source.files
    }
    file = remote_file(source, DAMAGED)
    assert MetadataCache(tmp_path / "state").verdict(file.pointer, file.etag) is True
    hub.forget_requests()
    assert resumerge.cache_repair("org/model", state_dir=tmp_path / "state").intact
    assert hub.files_served() == {}


@pytest.mark.parametrize("offline", [False, True])
def test_offline_the_hub_is_not_asked(
    hub: Hub, source: Source, tmp_path: Path, offline: bool
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("merge_method: passthrough\nmodels: [{model: org/model}]\n")
    report = resumerge.cache_check(recipe, state_dir=tmp_path / "state", offline=offline)
    assert states(report) == {DAMAGED: "damaged", MISSING: "missing"}
    assert bool(hub.requests) is not offline
