"""Promise: a run reads the commit that it began with; else the recipe's, or that of its branch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hub_models import ref, shard, sharded, single
from huggingface_hub import HfApi
from loopback_hub import Hub

from resumerge.errors import InputError, Resumable
from resumerge.hub.cache import remembered_commit, repo_folder
from resumerge.hub.model import cached_hub_model
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source
from resumerge.sources.remote.files import fetch
from resumerge.sources.remote.hub import open_hub_model

NAME = "model.safetensors"


def weights(source: Source) -> bytes:
    fetch(source, source.files)
    return (source.folder / NAME).read_bytes()


@pytest.mark.parametrize("away", [False, True], ids=["", "the hub is away"])
@pytest.mark.parametrize("offline", [False, True])
def test_a_pinned_commit_counts_more_than_what_the_recipe_names(
    hub: Hub, sleeps: list[float], offline: bool, away: bool
) -> None:
    first = hub.commit("org/model", single(fill=1), branch="dev")
    assert weights(open_hub_model(ref("org/model@dev"))) == single(fill=1)[NAME]
    second = hub.commit("org/model", single(fill=2), branch="dev")
    assert weights(open_hub_model(ref("org/model@dev"))) == single(fill=2)[NAME]
    hub.gone = away
    for name in ("org/model@dev", f"org/model@{second}"):
        source = open_hub_model(ref(name), revision=first, offline=offline)
        assert source.revision == first == source.folder.name
        assert (source.folder / NAME).read_bytes() == single(fill=1)[NAME]


def test_a_commit_that_the_recipe_names_is_read_from_the_cache_while_the_hub_is_away(
    hub: Hub, sleeps: list[float]
) -> None:
    first = hub.commit("org/model", single(fill=1))
    assert weights(open_hub_model(ref(f"org/model@{first}"))) == single(fill=1)[NAME]
    hub.commit("org/model", single(fill=2))
    hub.gone = True
    again = open_hub_model(ref(f"org/model@{first}"))
    assert (again.revision, again.files[NAME].present) == (first, True)


def test_a_branch_is_not_read_from_the_cache_while_the_hub_is_away(
    hub: Hub, sleeps: list[float]
) -> None:
    """The branch may have moved; `--offline` reads the commit that the cache has."""
    commit = hub.commit("org/model", single(fill=1))
    weights(open_hub_model(ref("org/model")))
    hub.gone = True
    for name in ("org/model", "org/model@main"):
        with pytest.raises(Resumable, match="cannot be reached"):
            open_hub_model(ref(name))
        assert open_hub_model(ref(name), offline=True).revision == commit


def test_what_the_hub_said_is_told_where_the_cache_cannot_stand_in(
    hub: Hub, sleeps: list[float]
) -> None:
    commit = hub.commit("org/model", single())
    hub.fail(status=403, times=None)
    with pytest.raises(InputError, match="HTTP 403"):
        open_hub_model(ref("org/model"), revision=commit)
    hub.faults.clear()
    hub.gone = True
    with pytest.raises(Resumable, match="cannot be reached"):
        open_hub_model(ref("org/model"), revision=commit)


def test_each_branch_is_remembered_by_its_own_name(hub: Hub) -> None:
    main = hub.commit("org/model", single(fill=1))
    dev = hub.commit("org/model", single(fill=2), branch="dev")
    pull = hub.commit("org/model", single(fill=3), branch="refs/pr/1")
    for name, commit in [("", main), ("@dev", dev), ("@refs/pr/1", pull)]:
        weights(open_hub_model(ref(f"org/model{name}")))
        source = open_hub_model(ref(f"org/model{name}"), offline=True)
        assert source.revision == commit
    assert [remembered_commit("org/model", name) for name in ("main", "dev", "refs/pr/1")] == [
        main, dev, pull
    ]  # fmt: skip
    moved = hub.commit("org/model", single(fill=4), branch="dev")
    open_hub_model(ref("org/model@dev"))
    assert remembered_commit("org/model", "dev") == moved
    assert remembered_commit("org/model", "main") == main


def test_a_branch_whose_commit_the_cache_lost_is_not_there(hub: Hub) -> None:
    commit = hub.commit("org/model", single())
    weights(open_hub_model(ref("org/model")))
    snapshots = repo_folder("org/model") / "snapshots"
    (snapshots / commit).rename(snapshots / ("0" * 40))
    for name in ("org/model", f"org/model@{commit}"):
        with pytest.raises(InputError, match="the cache does not have this model"):
            open_hub_model(ref(name), offline=True)


def test_offline_a_model_whose_headers_are_known_can_be_planned(hub: Hub, tmp_path: Path) -> None:
    """The weights that the cache lacks are named as missing when they are needed."""
    metadata = MetadataCache(tmp_path / "state")
    hub.commit("org/model", sharded(2))
    online = open_hub_model(ref("org/model"), metadata=metadata)
    fetch(online, [shard(1, 2)])
    source = open_hub_model(ref("org/model"), offline=True, metadata=metadata)
    assert source.tensors == online.tensors
    assert [file.present for file in source.files.values()] == [True, False]
    with pytest.raises(InputError, match=f"missing: {shard(2, 2)}\n"):
        fetch(source, source.files, metadata, offline=True)


def test_shards_are_read_as_they_are_where_the_index_names_another_one(hub: Hub) -> None:
    """transformers reads all tensors of every shard, too."""
    files = sharded(2)
    one, two = shard(1, 2), shard(2, 2)
    hub.commit("org/model", {**files, one: files[two], two: files[one]})
    swapped = open_hub_model(ref("org/model"))
    assert any("weight files and index disagree" in note for note in swapped.notes)
    hub.commit("org/model", files)
    sound = open_hub_model(ref("org/model"))
    assert {n: t.file for n, t in swapped.tensors.items()} == {
        n: {one: two, two: one}[t.file] for n, t in sound.tensors.items()
    }


def test_what_the_hub_lists_is_not_asked_for_file_by_file(hub: Hub) -> None:
    """The size of a listed file needs no request, even if it is 0."""
    hub.commit("org/model", single() | {"merges.txt": b""})
    source = open_hub_model(ref("org/model"))
    assert source.companions["merges.txt"].size == 0
    asked = {request.file for request in hub.requests}
    assert asked == {"", "config.json", NAME}
    fetch(source, ["merges.txt"])
    assert (source.folder / "merges.txt").read_bytes() == b""


@pytest.fixture(params=[("size",), ("blob_id", "lfs"), ("size", "blob_id", "lfs")])
def mirror(request: pytest.FixtureRequest, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Return a mirror of the Hub whose listing lacks sizes, hashes, or both."""
    real = HfApi.model_info

    def model_info(self: HfApi, *given: Any, **named: Any) -> Any:
        info = real(self, *given, **named)
        for sibling in info.siblings:
            for lacked in request.param:
                setattr(sibling, lacked, None)
        return info

    monkeypatch.setattr(HfApi, "model_info", model_info)
    return hub


def test_what_a_mirror_does_not_list_is_asked_for_file_by_file(mirror: Hub) -> None:
    """The files that are needed are requested, and no other."""
    files = sharded(2) | {"tokenizer.json": b"{}", "README.md": b"", "pytorch_model.bin": b"x"}
    mirror.commit("org/model", files)
    source = open_hub_model(ref("org/model"))
    needed = {*files} - {"README.md", "pytorch_model.bin", "model.safetensors.index.json"}
    described = {**source.files, **source.companions}
    assert {name: file.size for name, file in described.items()} == {
        name: len(files[name]) for name in needed
    }
    asked = {request.file for request in mirror.requests if request.method == "HEAD"}
    assert asked == needed | {"model.safetensors.index.json"}
    fetch(source, described)
    assert all((source.folder / name).read_bytes() == files[name] for name in needed)
    again = open_hub_model(ref("org/model"), offline=True)
    assert again.identity() == source.identity()


def test_a_server_that_says_too_little_of_a_file_or_a_commit_is_refused(
    mirror: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.commit("org/model", single())
    with monkeypatch.context() as patch:
        for size, etag in ((None, "a" * 64), (7, None)):
            said = SimpleNamespace(size=size, etag=etag)
            patch.setattr("huggingface_hub.get_hf_file_metadata", lambda *_, said=said, **__: said)
            with pytest.raises(InputError, match="did not send the size and the etag"):
                open_hub_model(ref("org/model"))
    for sha in (None, "main", "0" * 39):
        said = SimpleNamespace(sha=sha, siblings=[])
        monkeypatch.setattr(HfApi, "model_info", lambda *_, said=said, **__: said)
        with pytest.raises(InputError, match="did not say which commit this is"):
            open_hub_model(ref("org/model"))


def test_what_was_listed_without_a_size_is_as_large_as_it_is_in_the_cache(
    hub: Hub, tmp_path: Path
) -> None:
    """Some mirrors of the Hub list no sizes."""
    metadata = MetadataCache(tmp_path / "state")
    commit = hub.commit("org/model", single())
    weights(open_hub_model(ref("org/model")))
    listed = {NAME: (-1, "a" * 64), "config.json": (5, ""), "away.json": (-1, "b" * 40)}
    metadata.store_listing("org/model", commit, listed)
    files = cached_hub_model("org/model", None, metadata).files
    assert (files[NAME].size, files[NAME].etag) != (-1, "a" * 64)
    assert files[NAME].whole and files["config.json"].whole
    assert "away.json" not in files


def test_a_damaged_file_of_a_cache_without_links_is_replaced(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import file_download

    monkeypatch.setattr(file_download, "are_symlinks_supported", lambda cache_dir=None: False)
    hub.commit("org/model", single(fill=1))
    source = open_hub_model(ref("org/model"))
    assert weights(source) == single(fill=1)[NAME]
    (source.folder / NAME).write_bytes(single(fill=2)[NAME])
    assert weights(source) == single(fill=1)[NAME]
    assert not (source.folder / NAME).is_symlink()
