"""A temporary fault is retried; a lasting one stops the run so that it can be resumed."""

from __future__ import annotations

import pytest
from hub_models import ref, sharded, single
from loopback_hub import Hub

from resumerge.errors import InputError, Resumable
from resumerge.sources.remote.files import fetch
from resumerge.sources.remote.hub import open_hub_model


@pytest.mark.parametrize("status", [429, 500, 503, 522, 530])
def test_passing_error_of_the_listing_is_retried(
    hub: Hub, sleeps: list[float], status: int
) -> None:
    hub.commit("org/model", single())
    hub.fail("/api/models", status=status, times=2)
    assert len(open_hub_model(ref("org/model")).tensors) == 2
    assert sleeps == [1, 2]


def test_passing_errors_of_headers_and_files_are_retried(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", sharded(2))
    hub.fail("config.json", status=503, times=2)
    hub.fail("/cdn/", status=503, times=2)
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", status=503, times=1)
    fetch(source, source.files)
    for name in source.files:
        assert (source.folder / name).read_bytes() == sharded(2)[name]


def test_hub_that_asks_for_patience_is_given_it(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", single())
    hub.fail("/api/models", status=429, headers={"Retry-After": "7"})
    open_hub_model(ref("org/model"))
    assert sleeps == [7]


@pytest.mark.parametrize(
    "asked", ["soon", "-5", "\u00b2", "1e400", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 99 Oct 2015"]
)
def test_hub_that_asks_for_no_time_is_asked_again_as_usual(
    hub: Hub, sleeps: list[float], asked: str
) -> None:
    hub.commit("org/model", single())
    hub.fail("/api/models", status=429, headers={"Retry-After": asked})
    assert open_hub_model(ref("org/model")).tensors
    assert sleeps == [1]


def test_header_cut_short_is_read_again(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", single())
    hub.fail("/cdn/", cut_after=20)
    assert len(open_hub_model(ref("org/model")).tensors) == 2


def test_download_cut_short_arrives_whole(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", single(fill=3, numel=500_000))
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", cut_after=700_000)
    fetch(source, source.files)
    expected = single(fill=3, numel=500_000)["model.safetensors"]
    assert (source.folder / "model.safetensors").read_bytes() == expected


def test_network_gone_while_fetching_is_resumable(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    hub.gone = True
    with pytest.raises(Resumable) as caught:
        fetch(source, source.files)
    assert (caught.value.reason, caught.value.exit_code) == ("network", 75)
    assert "org/model" in str(caught.value)
    assert sum(sleeps) < 600
    hub.gone = False
    fetch(source, source.files)
    assert (source.folder / "model.safetensors").read_bytes() == single()["model.safetensors"]


def test_network_gone_before_planning_is_resumable(hub: Hub, sleeps: list[float]) -> None:
    hub.gone = True
    with pytest.raises(Resumable, match="--offline") as caught:
        open_hub_model(ref("org/model"))
    assert caught.value.reason == "network"
    assert sleeps == [1, 2, 4, 8]


def test_a_proxy_that_goes_on_failing_is_resumable(hub: Hub, sleeps: list[float]) -> None:
    """A Hub behind Cloudflare that does not answer in time has the status 522."""
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    hub.fail(status=522, times=None)
    for ask in (lambda: open_hub_model(ref("org/model")), lambda: fetch(source, source.files)):
        with pytest.raises(Resumable, match="HTTP 522") as caught:
            ask()
        assert caught.value.reason == "network"


@pytest.mark.parametrize("status", [501, 505])
def test_what_the_server_will_never_know_is_not_asked_again(
    hub: Hub, sleeps: list[float], status: int
) -> None:
    hub.commit("org/model", single())
    hub.fail(status=status, times=None)
    with pytest.raises(InputError, match="refused the request"):
        open_hub_model(ref("org/model"))
    assert sleeps == []


def test_nobody_listening_is_resumable(
    hub: Hub, sleeps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Resumable) as caught:
        open_hub_model(ref("org/model"))
    assert caught.value.reason == "network"


def test_pinned_commit_in_the_cache_needs_no_network(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    hub.gone = True
    with pytest.raises(Resumable):
        open_hub_model(ref("org/model"), revision=source.revision)
    hub.gone = False
    fetch(source, source.files)
    hub.gone = True
    assert (
        open_hub_model(ref("org/model"), revision=source.revision).identity() == source.identity()
    )
    with pytest.raises(Resumable):
        open_hub_model(ref("org/model"))


@pytest.mark.parametrize("status", [410, 500])
def test_signed_links_stay_out_of_messages(hub: Hub, sleeps: list[float], status: int) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    hub.fail("/cdn/", status=status, times=None)
    with pytest.raises((InputError, Resumable)) as caught:
        fetch(source, source.files)
    assert "org/model" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_full_disk_is_resumable(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def no_room(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(Resumable) as caught:
        fetch(source, source.files)
    assert caught.value.reason == "disk_full"
