"""Only the files that are needed are fetched, and each of them once."""

from __future__ import annotations

import pytest
from hub_models import ref, shard, sharded, single
from loopback_hub import Hub

from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.sources.remote.files import fetch
from resumerge.sources.remote.hub import open_hub_model


def test_only_the_shards_named_are_fetched(hub: Hub) -> None:
    hub.commit("org/model", sharded(3, numel=200_000))
    source = open_hub_model(ref("org/model"))
    hub.forget_requests()
    fetch(source, [shard(2, 3)])
    assert hub.files_served() == {shard(2, 3): source.files[shard(2, 3)].size}
    present = {name: file.present for name, file in open_hub_model(ref("org/model")).files.items()}
    assert present == {shard(1, 3): False, shard(2, 3): True, shard(3, 3): False}


def test_cached_model_is_not_fetched_again(hub: Hub) -> None:
    hub.commit("org/model", sharded(3))
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    hub.forget_requests()
    again = open_hub_model(ref("org/model"))
    fetch(again, again.files)
    assert hub.files_served() == {}
    assert all(file.present for file in again.files.values())
    assert again.identity() == source.identity()


def test_weights_that_a_new_commit_kept_are_not_fetched_again(hub: Hub) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    commit = hub.commit("org/model", single() | {"README.md": b"a better card"})
    hub.forget_requests()
    again = open_hub_model(ref("org/model"))
    assert again.revision == commit
    assert again.files["model.safetensors"].present
    assert (again.folder / "model.safetensors").is_file()
    assert "model.safetensors" not in hub.files_served()


@pytest.mark.parametrize("leads", ["not there", "nowhere"])
def test_content_that_lost_its_link_is_linked_again(hub: Hub, leads: str) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    link = source.folder / "model.safetensors"
    link.unlink()
    if leads == "nowhere":
        link.symlink_to("gone")
    hub.forget_requests()
    fetch(source, source.files)
    assert (source.folder / "model.safetensors").is_file()
    assert hub.files_served() == {}


def test_file_cut_short_on_disk_is_fetched_again_and_only_that(hub: Hub) -> None:
    hub.commit("org/model", sharded(3))
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    damaged = source.folder / shard(2, 3)
    damaged.resolve().write_bytes(damaged.read_bytes()[:100])
    hub.forget_requests()
    again = open_hub_model(ref("org/model"))
    assert not again.files[shard(2, 3)].present
    fetch(again, again.files)
    assert damaged.read_bytes() == sharded(3)[shard(2, 3)]
    assert set(hub.files_served()) == {shard(2, 3)}


def test_progress_ends_at_the_size_of_each_file(hub: Hub) -> None:
    hub.commit("org/model", sharded(2, numel=50_000))
    source = open_hub_model(ref("org/model"))
    for name, file in source.files.items():
        told: list[int] = []
        fetch(source, [name], callbacks=DownloadCallbacks(on_progress=told.append))
        assert told[-1] == file.size
        assert told == sorted(told) and told[0] > 0


def test_cache_is_the_standard_one(hub: Hub) -> None:
    from huggingface_hub import try_to_load_from_cache

    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    for revision in ("main", source.revision):
        found = try_to_load_from_cache("org/model", "model.safetensors", revision=revision)
        assert found == str(source.folder / "model.safetensors")
