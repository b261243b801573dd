"""A file that the Hub has in Xet goes through huggingface_hub, and is checked all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub_models import ref, single
from loopback_hub import Hub

from resumerge.hub.xet import XET_ONLY
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model

NAME = "model.safetensors"


@pytest.fixture
def transfers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Replace hf_xet and its servers; return the contents that they deliver, one a transfer."""
    from huggingface_hub import constants, file_download

    delivered = [single()[NAME]]

    def xet_get(*, incomplete_path: Path, **facts: Any) -> None:
        incomplete_path.write_bytes(delivered.pop(0))

    hub.xet = True
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setattr(file_download, "is_xet_available", lambda: True)
    monkeypatch.setattr(file_download, "xet_get", xet_get)
    return delivered


def test_it_comes_through_xet(hub: Hub, transfers: list[bytes]) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    hub.forget_requests()
    fetch(source, [NAME])
    assert (source.folder / NAME).read_bytes() == single()[NAME]
    assert transfers == []
    assert hub.files_served() == {}


def test_wrong_content_is_found_and_comes_again(hub: Hub, transfers: list[bytes]) -> None:
    transfers.insert(0, bytes(len(single()[NAME])))
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, [NAME])
    assert (source.folder / NAME).read_bytes() == single()[NAME]
    assert transfers == []


def test_a_part_that_came_over_http_is_finished_over_http(hub: Hub, transfers: list[bytes]) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    file = remote_file(source, NAME)
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    file.partial.write_bytes(single()[NAME][:600])
    hub.forget_requests()
    fetch(source, [NAME])
    assert (source.folder / NAME).read_bytes() == single()[NAME]
    assert hub.files_served() == {NAME: file.size - 600}
    assert len(transfers) == 1


def test_what_came_is_known_and_belongs_to_the_run(
    hub: Hub, transfers: list[bytes], tmp_path: Path
) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    metadata, started = MetadataCache(tmp_path / "state"), list[int]()
    fetch(source, [NAME], metadata, DownloadCallbacks(on_start=started.append))
    file = remote_file(source, NAME)
    assert metadata.verdict(file.blob, file.etag) is True
    assert started == [file.blob.stat().st_ino]


def test_a_part_of_what_xet_alone_serves_is_not_finished_over_http(
    hub: Hub, transfers: list[bytes]
) -> None:
    hub.commit("org/model", single())
    file = remote_file(open_hub_model(ref("org/model")), NAME)
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    for part, size, expected in (
        (b"", file.size, True),
        (b"x", file.size, False),
        (b"x", XET_ONLY, False),
        (b"x", XET_ONLY + 1, True),
    ):
        file.partial.write_bytes(part)
        assert (replace(file, size=size).whole_transfer() is not None) is expected
