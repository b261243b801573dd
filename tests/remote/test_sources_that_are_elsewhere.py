"""Promise: each file of a source is found where it belongs, whichever parts a source has, and
cached files are distinguished from missing ones."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from bucket_merges import safetensors, write
from loopback_hub import Hub
from parts_elsewhere import BASE, LORA, MODEL, NAME, SHARDS, WEIGHTS, until_all_are_ready
from served_objects import Objects

from resumerge.buckets.file import BucketFile
from resumerge.errors import InputError, Resumable
from resumerge.host.machine import FREE_BESIDE_DOWNLOADS
from resumerge.hub.file import HubFile
from resumerge.recipe.references import read_reference
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.open import open_source
from resumerge.sources.remote import prefetch
from resumerge.sources.remote.files import (
    check_cached,
    describe_missing,
    ensure_cached,
    fetch,
    list_companions,
    on_this_machine,
    partial_bytes,
    remote_file,
    uncached,
)
from resumerge.sources.remote.hub import open_hub_model
from resumerge.sources.remote.prefetch import DownloadProgress, Prefetcher
from resumerge.sources.types import FilesInWeights, Source


def moved(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Move this process's caches to another folder, as if it ran on another machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(home))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))


# Which file is meant


def test_each_file_is_one_of_its_own_part(source: Source, objects: Objects) -> None:
    assert {*source.files} == {*(f"base/{name}" for name in SHARDS), f"adapter/{WEIGHTS}"}
    for name, file in source.files.items():
        found = remote_file(source, name)
        assert (found.name, found.size) == (name.partition("/")[2], file.size)
        assert found.pointer == source.path(name) and found.etag == file.identity["etag"]
        assert found.revision == source.path(name).parent.name
    of_hub, of_bucket = (
        remote_file(source, f"{n}") for n in (f"base/{SHARDS[0]}", f"adapter/{WEIGHTS}")
    )
    assert isinstance(of_hub, HubFile) and of_hub.model == "org/base"
    assert isinstance(of_bucket, BucketFile) and of_bucket.model == "s3://box/lora"
    assert of_bucket.etag == objects.stored[f"lora/{WEIGHTS}"].etag
    assert source.base is not None
    companion = remote_file(source.base, "tokenizer.json")
    assert companion.size == len(BASE["tokenizer.json"])
    assert companion.pointer == source.base.folder / "tokenizer.json"


def test_the_files_of_both_parts_are_downloaded_ahead(
    source: Source, metadata: MetadataCache
) -> None:
    files = {**{f"base/{n}": BASE[n] for n in SHARDS}, f"adapter/{WEIGHTS}": LORA[WEIGHTS]}
    with Prefetcher([(source, name) for name in files], metadata) as fetcher:
        until_all_are_ready(fetcher, 3)
        assert all(fetcher.is_ready(source, name) for name in files)
    assert {name: source.path(name).read_bytes() for name in files} == files


def test_a_copy_that_is_damaged_is_replaced_and_told(
    model: Source, metadata: MetadataCache
) -> None:
    fetch(model, [NAME], metadata)
    file, events = remote_file(model, NAME), list[tuple[str, object]]()
    file.blob.write_bytes(bytes(file.size))

    def on_event(kind: str, **facts: object) -> None:
        events.append((kind, facts["file"]))

    wanted = [(model, "config.json"), (model, NAME), (model, "config.json")]
    with Prefetcher(wanted, metadata, on_event=on_event) as fetcher:
        until_all_are_ready(fetcher, 2)
    assert file.blob.read_bytes() == MODEL[NAME] and events == [("source_damaged", NAME)]


def test_progress_names_the_file_that_arrives(model: Source, metadata: MetadataCache) -> None:
    with Prefetcher([(model, NAME)], metadata) as fetcher:
        until_all_are_ready(fetcher, 1)
        size = len(MODEL[NAME])
        assert fetcher.progress == DownloadProgress(NAME, size, size)


def test_another_machine_has_them_in_caches_of_its_own(
    source: Source, metadata: MetadataCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the first machine's cache is not present on the other one."""
    for part in source.parts.values():
        fetch(part, part.files, metadata)
    full = open_source(read_reference("org/base+s3://box/lora"), metadata=metadata)
    assert all(file.present for file in full.files.values())
    moved(monkeypatch, tmp_path / "there")
    there = on_this_machine(full)
    assert not any(file.present for file in there.files.values())
    assert there.base is not None and there.folder == there.base.folder
    for name in full.files:
        assert there.path(name).is_relative_to(tmp_path / "there")
        assert there.path(name) == remote_file(there, name).pointer != full.path(name)
        assert there.path(name).parts[-2:] == full.path(name).parts[-2:], "at the same version"
    assert there.identity() == full.identity()


def test_what_is_local_stays_where_it_is(
    objects: Objects, metadata: MetadataCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local file is present on every machine, even beside an adapter that is elsewhere."""
    write(tmp_path / "base", BASE)
    mixed = open_source(read_reference(f"{tmp_path}/base+s3://box/lora"), metadata=metadata)
    assert mixed.adapter is not None
    fetch(mixed.adapter, [WEIGHTS], metadata)
    mixed = open_source(mixed.ref, metadata=metadata)
    present = {name: name.startswith("base/") for name in mixed.files}
    assert {name: file.present for name, file in uncached(mixed).files.items()} == present
    moved(monkeypatch, tmp_path / "there")
    there = on_this_machine(mixed)
    assert {name: file.present for name, file in there.files.items()} == present
    assert there.path(f"base/{SHARDS[0]}") == tmp_path / "base" / SHARDS[0]
    local = open_source(read_reference(f"{tmp_path}/base"))
    assert on_this_machine(local) == local == uncached(local)
    fetch(local, ["what needs not be there"], offline=True)
    with Prefetcher([], metadata) as fetcher:
        assert fetcher.is_ready(local, SHARDS[0]) and fetcher.progress is None
        streamed = replace(mixed, streams=True, files=uncached(mixed).files)
        assert fetcher.is_ready(streamed, f"adapter/{WEIGHTS}")
        assert not fetcher.is_ready(mixed, f"adapter/{WEIGHTS}")


PIPELINE = {
    "model_index.json": json.dumps(
        {
            "_class_name": "AnyPipeline",
            "unet": ["diffusers", "UNet2DConditionModel"],
            "tokenizer": ["transformers", "CLIPTokenizer"],
        }
    ).encode(),
    "unet/config.json": b'{"_class_name": "UNet2DConditionModel"}',
    "unet/diffusion_pytorch_model.safetensors": safetensors({"a.weight": (4, 4)}, 1),
    "tokenizer/vocab.json": b"{}",
    "tokenizer/merges.txt": b"",
    "other/config.json": b"{}",
}


@pytest.mark.parametrize("files", [BASE, PIPELINE, MODEL | {"own.py": b"", "a/b/c.json": b"{}"}])
def test_a_model_that_is_elsewhere_is_read_as_a_local_one(
    objects: Objects, metadata: MetadataCache, tmp_path: Path, files: dict[str, bytes]
) -> None:
    """The remote and the local model have the same tensors, weight files and companions."""
    objects.upload("same", files)
    there = open_source(read_reference("s3://box/same"), metadata=metadata)
    here = open_source(read_reference(str(write(tmp_path / "same", files))))
    assert there.tensors == here.tensors and there.config == here.config
    assert list_companions(there) == list_companions(here) != []
    assert {name: file.size for name, file in there.files.items()} == {
        name: file.size for name, file in here.files.items()
    }
    assert {name: file.first for name, file in there.files.items()} == {
        name: file.first for name, file in here.files.items()
    }
    assert (there.components, there.single) == (here.components, here.single)
    assert {name: file.size for name, file in there.companions.items()} == {
        name: len(files[name]) for name in list_companions(here)
    }


# What the cache has


def test_of_what_is_missing_its_fault_is_named(
    hub: Hub, model: Source, metadata: MetadataCache
) -> None:
    file, size = remote_file(model, NAME), len(MODEL[NAME])
    assert describe_missing(file) == NAME
    fetch(model, [NAME], metadata)
    file.blob.write_bytes(bytes(size))
    assert describe_missing(file) == f"{NAME} (damaged)"
    file.blob.write_bytes(bytes(7))
    assert describe_missing(file) == f"{NAME} (damaged: 7 of {size} bytes)"
    hub.forget_requests()
    with pytest.raises(InputError) as told:
        fetch(model, [NAME, "tokenizer.json"] if "tokenizer.json" in model.companions else [NAME],
              metadata, offline=True)  # fmt: skip
    assert f"missing: {NAME} (damaged: 7 of {size} bytes)" in told.value.problems[0].found
    with pytest.raises(InputError, match=r"damaged: 7 of"):
        ensure_cached(file, metadata, offline=True)
    assert hub.requests == []
    fetch(model, [NAME], metadata)
    assert file.blob.read_bytes() == MODEL[NAME]


def test_a_copy_that_was_cut_short_is_not_present(
    hub: Hub, model: Source, metadata: MetadataCache
) -> None:
    """A plan needs only the recorded header; without the header, the damage is reported."""
    fetch(model, [NAME], metadata)
    file = remote_file(model, NAME)
    assert open_hub_model(model.ref, metadata=metadata).files[NAME].present
    file.blob.write_bytes(MODEL[NAME][:-1])
    for offline in (False, True):
        again = open_hub_model(model.ref, metadata=metadata, offline=offline)
        assert again.tensors == model.tensors and not again.files[NAME].present
    hub.forget_requests()
    metadata.store_header(file.identity, None)
    with pytest.raises(InputError, match=f"missing: {NAME} .damaged: {file.size - 1} of"):
        open_hub_model(model.ref, metadata=metadata, offline=True)
    assert hub.requests == []


def test_a_copy_has_the_etag_that_its_link_names_whatever_its_bytes(
    model: Source, metadata: MetadataCache
) -> None:
    """A damaged copy keeps its identity even if only the cache is known."""
    fetch(model, [NAME], metadata)
    blob = remote_file(model, NAME).blob
    blob.write_bytes(MODEL[NAME][:-1] + b"?")
    again = open_hub_model(model.ref, metadata=MetadataCache(), offline=True)
    assert again.files[NAME].identity == model.files[NAME].identity
    with pytest.raises(InputError, match=f"missing: {NAME} .damaged."):
        fetch(again, [NAME], MetadataCache(), offline=True)


def test_a_content_that_lost_its_name_is_named_again(
    hub: Hub, model: Source, metadata: MetadataCache
) -> None:
    fetch(model, [NAME], metadata)
    hub.forget_requests()
    remote_file(model, NAME).pointer.unlink()
    fetch(model, [NAME], metadata)
    assert model.path(NAME).read_bytes() == MODEL[NAME] and hub.requests == []


def test_offline_nothing_is_downloaded_to_be_opened(
    hub: Hub, model: Source, metadata: MetadataCache
) -> None:
    """A config that the cache lost, and a file that the recipe names, are reported as missing."""
    with pytest.raises(InputError, match=r"missing: none\.safetensors"):
        open_hub_model(
            read_reference("org/model/none.safetensors"), metadata=metadata, offline=True
        )
    (model.folder / "config.json").resolve().unlink()
    with pytest.raises(InputError, match=r"missing: config\.json"):
        open_hub_model(model.ref, metadata=metadata, offline=True)
    assert hub.requests == []


@pytest.mark.parametrize("name", ["org/bare", "s3://box/bare"])
def test_a_model_without_a_config_lacks_none_offline(
    hub: Hub, objects: Objects, metadata: MetadataCache, name: str
) -> None:
    files = {NAME: MODEL[NAME], "tokenizer.json": b"{}"}
    hub.commit("org/bare", files)
    objects.upload("bare", files)
    source = open_source(read_reference(name), metadata=metadata)
    fetch(source, [NAME, "tokenizer.json"], metadata)
    again = open_source(read_reference(name), metadata=metadata, offline=True)
    assert again.identity() == source.identity() and source.config == {}


def test_the_environment_forbids_downloads_as_well(
    hub: Hub, model: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=f"missing: {NAME}"):
        fetch(model, [NAME], metadata)
    with pytest.raises(InputError, match=f"missing: {NAME}"):
        ensure_cached(remote_file(model, NAME), metadata)
    assert hub.requests == []


def test_how_much_of_a_file_an_earlier_download_left(model: Source) -> None:
    file = remote_file(model, NAME)
    assert partial_bytes(file) == 0
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    for there, counted in ((0, 0), (100, 100), (file.size, file.size), (file.size + 9, file.size)):
        file.partial.write_bytes(bytes(there))
        assert partial_bytes(file) == counted


def test_a_file_is_read_once_and_again_when_it_changed(
    model: Source, metadata: MetadataCache
) -> None:
    file, checks = remote_file(model, NAME), list[None]()
    assert not check_cached(file, metadata, DownloadCallbacks())
    assert metadata.damages(file.blob, since="") == [], "what is missing is not damaged"
    fetch(model, [NAME], metadata)
    events: list[tuple[str, object]] = []
    callbacks = DownloadCallbacks(
        check=lambda: checks.append(None),
        on_event=lambda kind, **facts: events.append((kind, facts)),
    )
    assert check_cached(file, metadata, callbacks) and checks == []
    assert check_cached(replace(file, etag="0" * 64), metadata, callbacks) is False
    assert checks
    [(kind, facts)] = events
    [damage] = metadata.damages(file.blob, since="")
    expected = {"model": "org/model", "file": NAME, "damage": damage.id}
    assert (kind, facts) == ("source_damaged", expected)
    del checks[:]
    assert check_cached(file, metadata, callbacks) and checks, "the verdict was of another etag"


def test_what_a_weight_file_contains_is_not_fetched(
    hub: Hub, model: Source, metadata: MetadataCache
) -> None:
    made = replace(model, contained=FilesInWeights(("tokenizer.json", "zz.json")))
    fetch(made, ["tokenizer.json", "zz.json"], metadata)
    fetch(made, ["zz.json"], metadata, offline=True)
    assert hub.requests == []
    assert list_companions(made) == ["config.json", "tokenizer.json", "zz.json"]


def test_which_files_lie_beside_the_weights(model: Source, tmp_path: Path) -> None:
    beside = replace(model, companions=dict.fromkeys(["own.py", "b.json", "a.json"]))  # type: ignore[arg-type]
    assert list_companions(beside) == ["a.json", "b.json", "own.py"]
    assert list_companions(replace(beside, single=True)) == []
    assert list_companions(replace(beside, led_to_by_file=True)) == ["a.json", "b.json"]
    local = open_source(read_reference(str(write(tmp_path / "m", {**MODEL, "own.py": b""}))))
    assert list_companions(local) == ["config.json", "own.py"]


# What ends downloads


def test_after_a_file_that_cannot_be_had_no_other_is_begun(
    hub: Hub, objects: Objects, metadata: MetadataCache
) -> None:
    """Only the downloads that had begun continue: the run stops."""
    source = open_hub_model(read_reference("org/base"), metadata=metadata)
    hub.fail(status=403, times=None)
    hub.forget_requests()
    names = [*SHARDS, "tokenizer.json", "tokenizer_config.json"]
    with Prefetcher([(source, name) for name in names], metadata) as fetcher:
        with pytest.raises(Resumable, match="denied access"):
            while True:
                fetcher.wait(10)
        for thread in fetcher._threads:
            thread.join()
    assert {request.file for request in hub.requests} <= {*SHARDS}


def test_offline_all_files_that_are_missing_are_told_at_once(
    hub: Hub, objects: Objects, metadata: MetadataCache
) -> None:
    source = open_hub_model(read_reference("org/base"), metadata=metadata)
    fetch(source, ["config.json"], metadata)
    wanted = [SHARDS[1], "config.json", SHARDS[0], "tokenizer.json"]
    hub.forget_requests()
    with Prefetcher([(source, name) for name in wanted], metadata, offline=True) as fetcher:
        with pytest.raises(Resumable) as told:
            while True:
                fetcher.wait(10)
        assert fetcher.is_ready(source, "config.json")
    assert all(name in str(told.value) for name in (*SHARDS, "tokenizer.json"))
    assert told.value.reason == "source_unavailable" and hub.requests == []


def test_downloads_at_once_need_the_space_of_both(
    model: Source, source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [(model, NAME), (source, f"base/{SHARDS[0]}")]
    files = [remote_file(*each) for each in wanted]
    both = FREE_BESIDE_DOWNLOADS + sum(file.size for file in files)
    for free, fits in ((both, True), (both - 1, False)):
        monkeypatch.setattr(prefetch, "free_bytes", lambda path, free=free: free)
        fetcher = Prefetcher(wanted, metadata)
        fetcher._reserve(files[0], files[0].size)
        with nullcontext() if fits else pytest.raises(Resumable, match="space"):
            fetcher._reserve(files[1], files[1].size)


def test_a_bug_is_told_as_it_is_and_ends_the_downloads(
    hub: Hub, objects: Objects, metadata: MetadataCache
) -> None:
    source = open_hub_model(read_reference("org/base"), metadata=metadata)

    started: list[object] = []

    def on_start(file: object, inode: int) -> None:
        started.append(file)
        raise LookupError("a bug")

    wanted = [(source, name) for name in (*SHARDS, "tokenizer.json", "tokenizer_config.json")]
    with Prefetcher(wanted, metadata, on_start=on_start) as fetcher:
        with pytest.raises(LookupError, match="a bug"):
            while True:
                fetcher.wait(10)
        for thread in fetcher._threads:
            thread.join()
    assert 1 <= len(started) <= 2, "each thread has one"
