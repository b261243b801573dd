"""A plan reads the headers of a model on the Hub, and not the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gguf_models import FAMILIES, write_gguf
from hub_models import CONFIG, ref, safetensors, sharded
from loopback_hub import Blob, Hub

from resumerge.errors import InputError, Resumable
from resumerge.recipe.references import read_reference
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.gguf import from_gguf
from resumerge.sources.remote.hub import open_hub_model
from resumerge.sources.remote.prefetch import Prefetcher


def test_headers_of_a_big_file_move_less_than_100_kb(hub: Hub) -> None:
    names = [f"model.layers.{i}.self_attn.q_proj.weight" for i in range(300)]
    hub.commit("org/big", {"config.json": CONFIG, "model.safetensors": safetensors(names, 100_000)})
    source = open_hub_model(ref("org/big"))
    assert len(source.tensors) == 300
    assert source.files["model.safetensors"].size > 60_000_000
    assert not source.files["model.safetensors"].present
    assert sum(hub.files_served().values()) < 100_000
    assert not (source.folder / "model.safetensors").exists()


def test_header_longer_than_one_request_is_read_to_its_end(hub: Hub) -> None:
    names = [f"model.layers.{i}.{'x' * 100}.weight" for i in range(2000)]
    file = safetensors(names, 1024)
    hub.commit("org/long", {"config.json": CONFIG, "model.safetensors": file})
    source = open_hub_model(ref("org/long"))
    assert sorted(source.tensors) == sorted(names)
    header = 8 + int.from_bytes(file[:8], "little")
    assert hub.files_served()["model.safetensors"] <= header < len(file) / 10


def test_server_that_ignores_ranges_is_cut_short(hub: Hub) -> None:
    hub.ranges = False
    names = [f"layers.{i}.{'x' * 100}" for i in range(1000)]
    file = safetensors(names, 50_000)
    hub.commit("org/big", {"config.json": CONFIG, "model.safetensors": file})
    assert len(open_hub_model(ref("org/big")).tensors) == 1000
    assert hub.files_served()["model.safetensors"] < len(file) / 5


HEADER = safetensors(["a", "b"], 1000)

UNFIT: dict[str, dict[str, str | None]] = {
    "another first byte": {"Content-Range": f"bytes 8-{len(HEADER) - 1}/{len(HEADER)}"},
    "bytes behind those": {"Content-Range": f"bytes 0-{len(HEADER)}/{len(HEADER)}"},
    "another size": {"Content-Range": f"bytes 0-{len(HEADER) - 1}/{len(HEADER) + 1}"},
    "no range": {"Content-Range": None},
    "encoded": {"Content-Encoding": "x-unknown"},
}


@pytest.mark.parametrize("name", UNFIT)
def test_other_bytes_than_were_asked_for_are_no_header(
    hub: Hub, sleeps: list[float], name: str
) -> None:
    hub.commit("org/model", {"config.json": CONFIG, "model.safetensors": HEADER})
    hub.fail("/cdn/", method="GET", says=UNFIT[name])
    assert [*open_hub_model(ref("org/model")).tensors] == ["a", "b"]
    answers = [request.status for request in hub.requests if "/cdn/" in request.path]
    assert answers == [206, 206], "it was asked for again"


def test_a_whole_file_that_is_encoded_is_no_header(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", {"config.json": CONFIG, "model.safetensors": HEADER})
    hub.ranges = False
    hub.fail("/cdn/", method="GET", says={"Content-Encoding": "x-unknown"})
    assert [*open_hub_model(ref("org/model")).tensors] == ["a", "b"]
    answers = [request.status for request in hub.requests if "/cdn/" in request.path]
    assert answers == [200, 200]


def test_shards_are_found_through_the_index(hub: Hub) -> None:
    hub.commit("org/model", sharded(3))
    source = open_hub_model(ref("org/model"))
    assert list(source.files) == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert source.tensors["model.layers.1.weight"].file == "model-00002-of-00003.safetensors"
    assert source.config["model_type"] == "llama"
    assert source.kind == "hub"


def test_header_that_lies_is_refused(hub: Hub) -> None:
    file = safetensors(["a"], 1000)[:-10]
    hub.commit("org/model", {"config.json": CONFIG, "model.safetensors": file})
    with pytest.raises(InputError, match="damaged"):
        open_hub_model(ref("org/model"))


def test_etag_that_leads_out_of_the_cache_is_refused(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blob, "blob_id", "../../../../evil")
    hub.commit("org/model", {"config.json": CONFIG, "model.safetensors": safetensors(["a"])})
    with pytest.raises(InputError, match="etag that is not a hash"):
        open_hub_model(ref("org/model"))
    assert not list(hub.home.parent.rglob("evil*"))


def test_header_that_is_not_the_file_s_own_is_not_merged_by(hub: Hub, tmp_path: Path) -> None:
    file = safetensors(["a", "b"], 1000)
    hub.commit("org/model", {"config.json": CONFIG, "model.safetensors": file})
    hub.fail("/cdn/", wrong_byte=file.index(b'"b"') + 1)
    source = open_hub_model(ref("org/model"), metadata=MetadataCache(tmp_path))
    assert set(source.tensors) == {"a", "c"}
    metadata = MetadataCache(tmp_path)
    fetcher = Prefetcher([(source, "model.safetensors")], metadata)
    with fetcher, pytest.raises(Resumable) as caught:
        while True:
            fetcher.wait(10)
    assert caught.value.reason == "source_changed"
    assert set(open_hub_model(ref("org/model"), metadata=metadata).tensors) == {"a", "b"}


def test_index_that_leads_out_of_the_folder_is_refused(hub: Hub) -> None:
    index = json.dumps({"weight_map": {"a": "../../secrets.safetensors"}}).encode()
    hub.commit("org/model", {"config.json": CONFIG, "model.safetensors.index.json": index})
    with pytest.raises(InputError, match="outside the model's folder"):
        open_hub_model(ref("org/model"))


def test_index_that_names_an_absent_file_is_refused(hub: Hub) -> None:
    files = sharded(3)
    del files["model-00002-of-00003.safetensors"]
    hub.commit("org/model", files)
    with pytest.raises(InputError, match="missing: model-00002-of-00003"):
        open_hub_model(ref("org/model"))


def test_a_file_in_gguf_is_read_from_its_first_bytes(hub: Hub, tmp_path: Path) -> None:
    made = FAMILIES["llama"]
    write_gguf(tmp_path / "a.gguf", made, made.tensors(1), "Q8_0")
    data = (tmp_path / "a.gguf").read_bytes()
    hub.commit("org/gguf", {"q/a-Q8_0.gguf": data, "a-Q8_0.gguf": data, "tokenizer.json": b"{}"})
    for name in ("org/gguf/a-Q8_0.gguf", "org/gguf"):
        source = open_hub_model(read_reference(name))
        assert [*source.files] == ["a-Q8_0.gguf"] and not source.files["a-Q8_0.gguf"].present
        assert [*source.companions] == ["tokenizer.json"]
        assert source.identity()["single"], "the file alone leads to it"
        assert from_gguf(source).config["model_type"] == "llama"


def test_repo_of_another_format_is_refused_with_a_way_out(hub: Hub) -> None:
    hub.commit("org/old", {"config.json": CONFIG, "model.h5": b"HDF"})
    with pytest.raises(InputError, match="weights of a model are missing") as caught:
        open_hub_model(ref("org/old"))
    assert "model.h5" in str(caught.value)
    assert "save_pretrained" in str(caught.value)
