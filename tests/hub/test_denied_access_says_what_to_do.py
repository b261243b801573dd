"""A refusal by the Hub is an input error at once, with what to do about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hub_models import ref, single
from huggingface_hub.errors import HfHubHTTPError
from loopback_hub import Hub

from resumerge.errors import InputError, Reason, Resumable
from resumerge.hub.calls import explain_hub_error, retry_after
from resumerge.sources.remote.files import fetch
from resumerge.sources.remote.hub import open_hub_model

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


def refused(hub: Hub, name: str = "org/model") -> str:
    with pytest.raises(InputError) as caught:
        open_hub_model(ref(name))
    return str(caught.value)


def test_unknown_repo(hub: Hub, sleeps: list[float]) -> None:
    message = refused(hub, "org/typo")
    assert "org/typo" in message
    assert "check the spelling" in message
    assert sleeps == []


def test_private_repo_without_a_token(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", single())
    hub.fail("org/model", status=401, code="RepoNotFound", times=None)
    message = refused(hub)
    assert "hf auth login" in message
    assert "HF_TOKEN" in message
    assert "no token was sent" in message
    assert sleeps == []


def test_gated_repo(hub: Hub) -> None:
    hub.commit("org/model", single())
    hub.fail("org/model", status=403, code="GatedRepo", times=None)
    assert "request access on the page of org/model" in refused(hub)


@pytest.mark.parametrize("status", [401, 403])
def test_token_without_the_right(hub: Hub, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.commit("org/model", single())
    hub.fail("/resolve/", status=status, code="Forbidden", times=None)
    message = refused(hub)
    assert "hf auth login" in message
    assert "a token was sent" in message
    assert TOKEN not in message


@pytest.mark.parametrize("status", [401, 403])
def test_a_login_page_is_not_the_hubs_refusal(hub: Hub, status: int, sleeps: list[float]) -> None:
    hub.commit("org/model", single())
    hub.fail("org/model", status=status, times=None, says={"Content-Type": "text/html"})
    with pytest.raises(Resumable, match=f"sent a web page: HTTP {status}") as caught:
        open_hub_model(ref("org/model"))
    assert caught.value.reason is Reason.NETWORK


def test_a_refusal_of_the_hub_may_be_a_page(hub: Hub) -> None:
    """A page whose header has an error code of the Hub comes from the Hub."""
    hub.commit("org/model", single())
    says = {"Content-Type": "text/html"}
    hub.fail("org/model", status=403, code="GatedRepo", times=None, says=says)
    assert "request access on the page of org/model" in refused(hub)


def test_a_page_that_says_that_nothing_is_there_may_be_the_hub_s(hub: Hub) -> None:
    """The message names the requested revision."""
    hub.commit("org/model", single(), branch="dev")
    for status, told in ((404, "no such model"), (403, "denied access"), (410, "refused the")):
        says = {"Content-Type": "text/html" if status != 403 else "text/plain"}
        hub.faults.clear()
        hub.fail("org/model", status=status, times=None, says=says)
        message = refused(hub, "org/model@dev")
        assert told in message and "org/model@dev" in message


def test_what_the_hub_said_is_found_in_what_its_library_makes_of_it() -> None:
    """The library wraps errors of downloads."""
    response: Any = SimpleNamespace(status_code=503, headers={"Retry-After": "7"}, request=None)
    wrapped = OSError("no file in the cache")
    wrapped.__cause__ = ValueError("wrapped twice")
    wrapped.__cause__.__cause__ = HfHubHTTPError("it fails", response=response)
    told = explain_hub_error(wrapped, "org/model", "dev")
    assert isinstance(told, Resumable) and "org/model@dev: HTTP 503" in str(told)
    assert retry_after(wrapped) == 7.0


def test_access_lost_between_plan_and_fetch(hub: Hub, sleeps: list[float]) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    hub.fail("model.safetensors", status=403, times=None)
    with pytest.raises(InputError, match="denied access"):
        fetch(source, source.files)


def test_name_that_is_no_repo(hub: Hub) -> None:
    assert "neither a local folder nor" in refused(hub, "./models/mine/x")
    assert hub.requests == []


def test_token_goes_to_the_hub_and_nowhere_else(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    carried = {request.host: request.authorization for request in hub.requests}
    assert carried == {"127.0.0.1": f"Bearer {TOKEN}", "localhost": None}
    for path in hub.home.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes()
