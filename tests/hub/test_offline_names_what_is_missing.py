"""Offline everything comes from the cache, and an error says exactly what is not in it."""

from __future__ import annotations

import pytest
from hub_models import CONFIG, ref, shard, sharded, single
from loopback_hub import Hub

from resumerge.errors import InputError
from resumerge.sources.remote.files import fetch, list_companions
from resumerge.sources.remote.hub import open_hub_model


def test_cached_model_opens_without_one_request(hub: Hub) -> None:
    hub.commit("org/model", sharded(2))
    online = open_hub_model(ref("org/model"))
    fetch(online, online.files)
    hub.gone = True
    hub.forget_requests()
    source = open_hub_model(ref("org/model"), offline=True)
    fetch(source, source.files, offline=True)
    assert source.identity() == online.identity()
    assert source.tensors == online.tensors
    assert source.config == online.config
    assert hub.requests == []


def test_environment_variable_counts_as_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    hub.commit("org/model", single())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="cache does not have this model"):
        open_hub_model(ref("org/model"))
    assert hub.requests == []


def test_missing_shards_are_named(hub: Hub) -> None:
    hub.commit("org/model", sharded(3))
    source = open_hub_model(ref("org/model"))
    fetch(source, [shard(1, 3)])
    with pytest.raises(InputError, match=f"missing: {shard(2, 3)}, {shard(3, 3)}\n"):
        open_hub_model(ref("org/model"), offline=True)
    with pytest.raises(InputError, match=f"missing: {shard(3, 3)}\n"):
        fetch(source, [shard(1, 3), shard(3, 3)], offline=True)


def test_missing_weights_are_named(hub: Hub) -> None:
    hub.commit("org/model", single())
    open_hub_model(ref("org/model"))
    with pytest.raises(InputError, match=r"missing: model\.safetensors, or"):
        open_hub_model(ref("org/model"), offline=True)


def test_missing_config_is_named(hub: Hub) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    (source.folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"missing: config\.json\n"):
        open_hub_model(ref("org/model"), offline=True)


def test_unknown_revision_is_told_from_unknown_repo(hub: Hub) -> None:
    hub.commit("org/model", single())
    open_hub_model(ref("org/model"))
    with pytest.raises(InputError, match="only other revisions"):
        open_hub_model(ref("org/model@dev"), offline=True)
    with pytest.raises(InputError, match="no file of this repo"):
        open_hub_model(ref("org/other"), offline=True)


def test_cache_without_links_has_the_same_identity(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import file_download

    monkeypatch.setattr(file_download, "are_symlinks_supported", lambda cache_dir=None: False)
    hub.commit("org/model", single())
    online = open_hub_model(ref("org/model"))
    fetch(online, online.files)
    assert not (online.folder / "model.safetensors").is_symlink()
    assert open_hub_model(ref("org/model"), offline=True).identity() == online.identity()


def test_companions_are_listed_and_fetched_at_the_commit(hub: Hub) -> None:
    files = single() | {"1_Pooling/config.json": b"{}", "onnx/config.json": b"{}"}
    hub.commit("org/model", files)
    source = open_hub_model(ref("org/model"))
    hub.commit("org/model", {"config.json": CONFIG})
    names = list_companions(source)
    assert names == [
        "1_Pooling/config.json",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    with pytest.raises(InputError, match=r"missing: 1_Pooling/config\.json, tokenizer\.json"):
        fetch(source, names, offline=True)
    fetch(source, names)
    assert (source.folder / "tokenizer_config.json").read_bytes() == b'{"a": 1}'
    hub.forget_requests()
    fetch(source, names, offline=True)
    assert list_companions(source) == names
    assert hub.requests == []
