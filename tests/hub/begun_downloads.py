"""A download that a process began before it was killed."""

from __future__ import annotations

import pytest
from hub_models import ref, single
from loopback_hub import Hub, Request

from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model

NAME = "model.safetensors"


MODEL = single(fill=7, numel=500_000)


SIZE = len(MODEL[NAME])


CUT = 700_000


class Killed(Exception):
    """A stand-in for the end of the process."""


def begun(hub: Hub, metadata: MetadataCache | None = None) -> Source:
    """Return a source, of which an earlier process downloaded a part before it was killed."""
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))

    def kill(nbytes: int) -> None:
        if nbytes >= CUT:
            raise Killed

    with pytest.raises(Killed):
        fetch(source, [NAME], metadata, DownloadCallbacks(on_progress=kill))
    assert remote_file(source, NAME).partial.stat().st_size >= CUT
    hub.forget_requests()
    return source


def downloads(hub: Hub) -> list[Request]:
    return [r for r in hub.requests if r.file == NAME and r.status != 302]


def is_whole(source: Source) -> bool:
    return (source.folder / NAME).read_bytes() == MODEL[NAME]
