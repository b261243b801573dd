"""Promise: a source that is elsewhere is opened at its version, by headers that are requested once;
what is not a model is an error, and a file that differs from the planned one is not merged."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace

import pytest
from bucket_merges import CONFIG, safetensors, whole
from loopback_hub import Hub
from parts_elsewhere import BASE, MODEL, NAME, SHARDS, WEIGHTS, until_all_are_ready
from served_objects import Objects

from resumerge.errors import InputError, Resumable
from resumerge.event_kinds import EventKind
from resumerge.recipe.references import read_reference
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.bucket import open_bucket_model
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.remote.headers import FIRST_REQUEST, remote_header
from resumerge.sources.remote.hub import open_hub_model
from resumerge.sources.remote.prefetch import Prefetcher
from resumerge.sources.types import Source
from resumerge.tensors import Stored

# Headers


def test_a_header_is_kept_alone_and_asked_for_once(
    objects: Objects, metadata: MetadataCache
) -> None:
    """The first request has more bytes than most headers, and no more than the file."""
    for numel, last in ((10, None), (50_000, FIRST_REQUEST)):
        data = safetensors({"a": (numel,)}, 1)
        objects.put(f"{numel}/{NAME}", data)
        source = open_bucket_model(read_reference(f"s3://box/{numel}"), metadata=metadata)
        [get] = objects.asked(f"{numel}/{NAME}")
        assert get.headers["range"] == f"bytes=0-{(last or len(data)) - 1}"
        file = remote_file(source, NAME)
        assert metadata.header(file.identity) == data[: 8 + int.from_bytes(data[:8], "little")]
        again = remote_header(file, metadata)
        assert again.tensors == source.tensors and again.first == source.files[NAME].first
        assert len(objects.asked(f"{numel}/{NAME}")) == 1


def test_a_header_that_is_longer_is_asked_for_to_its_end(
    objects: Objects, metadata: MetadataCache
) -> None:
    data = safetensors({f"{n}.{'x' * 100}": (2,) for n in range(500)}, 1)
    objects.put(f"long/{NAME}", data)
    assert len(open_bucket_model(read_reference("s3://box/long"), metadata=metadata).tensors) == 500
    length = 8 + int.from_bytes(data[:8], "little")
    ranges = [get.headers["range"] for get in objects.asked(f"long/{NAME}")]
    assert ranges == [f"bytes=0-{FIRST_REQUEST - 1}", f"bytes={FIRST_REQUEST}-{length - 1}"]


PICKLED = (
    b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
    b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQK\x00K\x02K\x02\x86"
    b"K\x02K\x01\x86\x89ccollections\nOrderedDict\n)RtRs."
)
"""What torch.save pickles of ``{"a": torch.zeros(2, 2)}``."""


def test_of_a_file_whose_description_is_elsewhere_no_header_is_kept(
    objects: Objects, metadata: MetadataCache
) -> None:
    """The file counts as missing offline."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in (("data.pkl", PICKLED), ("data/0", bytes(16)), ("version", b"3")):
            file.writestr(f"archive/{name}", data)
    objects.put("torch/pytorch_model.bin", stream.getvalue())
    source = open_bucket_model(read_reference("s3://box/torch"), metadata=metadata)
    assert [*source.tensors] == ["a"]
    assert metadata.header(remote_file(source, "pytorch_model.bin").identity) is None
    with pytest.raises(InputError, match=r"missing: pytorch_model\.bin"):
        open_bucket_model(source.ref, metadata=metadata, offline=True)


def test_a_copy_whose_header_is_damaged_is_not_planned_by(
    hub: Hub, model: Source, metadata: MetadataCache
) -> None:
    """The header is read from the server; offline the copy is refused."""
    fetch(model, [NAME], metadata)
    file = remote_file(model, NAME)
    file.blob.write_bytes(bytes(file.size))
    fresh = MetadataCache()
    assert open_hub_model(read_reference("org/model"), metadata=fresh).tensors == model.tensors
    with pytest.raises(InputError, match="damaged"):
        open_hub_model(read_reference("org/model"), metadata=MetadataCache(), offline=True)


def test_a_header_that_a_copy_does_not_have_is_looked_for_again(
    hub: Hub, model: Source, metadata: MetadataCache
) -> None:
    """A copy with another header is damaged, even if it was recorded as intact before."""
    fetch(model, [NAME], metadata)
    file = remote_file(model, NAME)
    file.blob.write_bytes(MODEL[NAME].replace(b"up_proj", b"??_proj"))
    metadata.record_verdict(file.blob, file.etag, True)
    told: list[tuple[EventKind, dict[str, object]]] = []
    with Prefetcher(
        [(model, NAME)], metadata, on_event=lambda kind, **facts: told.append((kind, facts))
    ) as fetcher:
        until_all_are_ready(fetcher, 1)
    assert file.blob.read_bytes() == MODEL[NAME]
    [damage] = metadata.damages(file.blob, since="")
    facts = {"model": "org/model", "file": NAME, "damage": damage.id}
    assert told == [(EventKind.SOURCE_DAMAGED, facts)]


# What is not a model


def test_a_file_that_is_shorter_than_any_header_is_damaged(hub: Hub) -> None:
    hub.commit("org/short", {"config.json": json.dumps(CONFIG).encode(), NAME: b"abc"})
    with pytest.raises(InputError, match="damaged"):
        open_hub_model(read_reference("org/short"))


def test_files_that_the_index_names_in_vain(objects: Objects, metadata: MetadataCache) -> None:
    objects.upload("m", {name: data for name, data in BASE.items() if name != SHARDS[1]})
    with pytest.raises(InputError, match="The index names files that do not exist") as told:
        open_bucket_model(read_reference("s3://box/m"), metadata=metadata)
    [problem] = told.value.problems
    assert (problem.where, problem.expected) == ("s3://box/m", "2 files")
    assert (problem.found, problem.fix) == (f"missing: {SHARDS[1]}", "upload them")


def test_a_model_in_another_format_is_told_offline_as_well(
    hub: Hub, metadata: MetadataCache
) -> None:
    """The reason is the missing weights, not the missing network."""
    hub.commit(
        "org/old",
        {"config.json": json.dumps(CONFIG).encode(), "model.h5": b"HDF"}
        | {f"{n}.txt": b"" for n in range(30)},
    )
    for offline in (False, True):
        with pytest.raises(InputError, match="The weights of a model are missing") as told:
            open_hub_model(read_reference("org/old"), offline=offline, metadata=metadata)
        assert "model.h5" in told.value.problems[0].found
        assert told.value.problems[0].where.startswith("org/old@")


# Headers that were planned with


def renamed(change: Callable[[str], str]) -> Callable[[Source], Source]:
    def new(source: Source) -> Source:
        tensors = {
            change(name): replace(tensor, name=change(name))
            for name, tensor in source.tensors.items()
            if isinstance(tensor, Stored)
        }
        return replace(source, tensors=tensors)

    return new


def of_another_dtype(source: Source) -> Source:
    [*names] = source.tensors
    first = source.tensors[names[0]]
    assert isinstance(first, Stored)
    return replace(source, tensors={**source.tensors, names[0]: replace(first, dtype="I32")})


def without_the_first(source: Source) -> Source:
    return replace(source, tensors=dict([*source.tensors.items()][1:]))


def without_the_last(source: Source) -> Source:
    return replace(source, tensors=dict([*source.tensors.items()][:-1]))


@pytest.mark.parametrize(
    "change, is_same",
    [
        (renamed(lambda name: name), True),
        (renamed(lambda name: f"text_model.{name}"), True),
        (renamed(lambda name: name.removeprefix("model.")), True),
        (renamed(lambda name: name.replace("layers", "blocks")), False),
        (of_another_dtype, False),
        (without_the_first, False),
        (without_the_last, False),
    ],
)
def test_a_file_is_ready_if_it_has_what_was_planned_with(
    model: Source, metadata: MetadataCache, change: Callable[[Source], Source], is_same: bool
) -> None:
    """A component's name before the tensors' names is not a difference."""
    planned = change(model).numbered(3)
    with Prefetcher([(planned, NAME), (planned, "config.json")], metadata) as fetcher:
        if is_same:
            until_all_are_ready(fetcher, 2)
            return
        with pytest.raises(Resumable, match="differs from the header") as told:
            until_all_are_ready(fetcher, 2)
        assert told.value.reason == "source_changed"
        assert metadata.header(remote_file(model, NAME).identity) is None, "it is asked for again"


def test_the_header_of_an_adapter_is_compared_as_well(
    source: Source, metadata: MetadataCache
) -> None:
    assert source.adapter is not None
    other = replace(source, adapter=of_another_dtype(source.adapter))
    with Prefetcher([(source, f"adapter/{WEIGHTS}")], metadata) as fetcher:
        until_all_are_ready(fetcher, 1)
    fetcher = Prefetcher([(other, f"adapter/{WEIGHTS}")], metadata)
    with fetcher, pytest.raises(Resumable, match="differs from the header"):
        until_all_are_ready(fetcher, 1)


# Which version is opened


def test_what_was_pinned_is_opened_and_not_what_the_branch_is_now(
    hub: Hub, metadata: MetadataCache
) -> None:
    first = hub.commit("org/moved", whole(4))
    second = hub.commit("org/moved", whole(5))
    for name in ("org/moved", "org/moved@main"):
        assert open_hub_model(read_reference(name), metadata=metadata).revision == second
        assert (
            open_hub_model(read_reference(name), revision=first, metadata=metadata).revision
            == first
        )


def test_of_a_bucket_that_cannot_be_listed_the_listing_of_then_is_opened(
    objects: Objects, metadata: MetadataCache
) -> None:
    ref = read_reference("s3://box/moved")
    found = []
    for seed in (4, 5):
        objects.upload("moved", whole(seed))
        source = open_bucket_model(ref, metadata=metadata)
        fetch(source, [*source.files, "config.json"], metadata)
        found.append(source.revision)
    assert found[0] != found[1]
    for then in found:
        assert (
            open_bucket_model(ref, revision=then, metadata=metadata, offline=True).revision == then
        )
    objects.clear()
    assert [
        open_bucket_model(ref, revision=then, metadata=metadata).revision for then in found
    ] == found
