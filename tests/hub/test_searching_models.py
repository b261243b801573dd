"""Promise: a search names the models that the Hub has, and that its token may read."""

from __future__ import annotations

import pytest
from loopback_hub import Hub

from resumerge.errors import InputError, Resumable
from resumerge.hub.search import models_with, search_models


@pytest.fixture
def stocked(hub: Hub) -> Hub:
    for name in ("ann/math-7b", "org/Math-1b", "org/code"):
        hub.commit(name, {"config.json": b"{}"})
    hub.repos["ann/math-7b"].private = True
    hub.tokens = {"hf_ann": "@ann", "hf_bob": "@bob"}
    return hub


def test_by_a_part_of_the_name(stocked: Hub) -> None:
    assert search_models("math", token="hf_ann") == ["ann/math-7b", "org/Math-1b"]
    assert search_models("math", token="hf_ann", most=1) == ["ann/math-7b"]


def test_of_one_author(stocked: Hub) -> None:
    assert search_models("", author="ann", token="hf_ann") == ["ann/math-7b"]


def test_what_the_token_may_not_read_is_not_named(stocked: Hub) -> None:
    assert search_models("math", token="hf_bob") == ["org/Math-1b"]
    assert search_models("math", token=False) == ["org/Math-1b"]


def test_models_that_have_files_in_a_folder_and_lack_another_one(stocked: Hub) -> None:
    """The search finds the models of one author that the token may read."""
    for name, files in {
        "ann/begun": ("run/a", "config.json"),
        "ann/done": ("run/a", "done.json"),
        "ann/done-below": ("run/a", "run/done.json"),
        "ann/other": ("runs/a", "a/run/b", "run"),
        "org/begun": ("run/a",),
    }.items():
        stocked.commit(name, dict.fromkeys(files, b"x"))
    found = models_with("run/", "done.json", "ann", "hf_ann")
    assert sorted(found) == ["ann/begun", "ann/done-below"]
    stocked.repos["ann/begun"].private = True
    assert models_with("run/", "done.json", "ann", "hf_bob") == ["ann/done-below"]


def test_a_hub_that_does_not_answer_is_told(stocked: Hub, sleeps: list[float]) -> None:
    stocked.gone = True
    with pytest.raises(Resumable, match="The Hub cannot be reached"):
        search_models("math")


def test_offline_no_hub_is_asked(stocked: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="the Hub cannot be searched"):
        search_models("math")
    with pytest.raises(InputError, match="the Hub cannot be searched"):
        models_with("run/", "done.json", "ann", None)
    assert stocked.requests == []
