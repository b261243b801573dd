"""Promise: an unusable path of a model is an error in the recipe; a failing disk is not."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from merging import working_in
from waiting import HANGS_SECONDS

from resumerge.engine.opening import open_sources as module
from resumerge.engine.opening.open_sources import SourcesUnavailable, open_sources
from resumerge.errors import InputError, Problem, Reason, Resumable, refuse
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source

RECIPE = parse_recipe("merge_method: passthrough\nmodels:\n  - model: ./a\n")


def opened(patch: pytest.MonkeyPatch, state: Path, code: int, pins: dict[str, Any]) -> None:
    def fail(*words: Any, **more: Any) -> None:
        raise OSError(code, os.strerror(code), "a/config.json")

    patch.setattr(module, "open_source", fail)
    problems: list[Problem] = []
    open_sources(RECIPE, pins, problems, MetadataCache(state), offline=False)


@pytest.mark.parametrize("name", ["EACCES", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOTDIR", "EPERM"])
def test_a_path_that_does_not_fit_is_refused_at_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    code = getattr(errno, name)
    with pytest.raises(SourcesUnavailable) as refused:
        opened(monkeypatch, tmp_path, code, {})
    [problem] = refused.value.problems
    assert problem.found == f"a/config.json: {os.strerror(code)}" and problem.line == 3
    with pytest.raises(OSError):  # a run that read it before can go on when it is back
        opened(monkeypatch, tmp_path, code, {"./a": {"path": "/a"}})


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_what_a_disk_or_the_system_lacks_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    with pytest.raises(OSError) as failed:
        opened(monkeypatch, tmp_path, code, {})
    assert failed.value.errno == code


def test_who_waits_for_the_hub_is_told_that_it_may_be_a_misspelt_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told, texts = threading.Event(), []

    def answer_late(*words: Any, **more: Any) -> None:
        assert told.wait(HANGS_SECONDS)
        raise Resumable(Reason.NETWORK, "gone")

    def note(text: str) -> None:
        texts.append(text)
        told.set()

    monkeypatch.setattr(module, "open_source", answer_late)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    recipe = parse_recipe("merge_method: passthrough\nmodels:\n  - model: models/a\n")
    with pytest.raises(Resumable, match="does not exist in"):
        open_sources(recipe, {}, [], MetadataCache(tmp_path), offline=False, note=note)
    assert [text for text in texts if "models/a is meant to be a folder" in text] == texts
    assert len(texts) == 1


def test_without_a_network_the_place_of_the_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*words: Any, **more: Any) -> None:
        raise Resumable(Reason.NETWORK, "gone")

    monkeypatch.setattr(module, "open_source", answer)
    text = "merge_method: linear\nmodels: [{model: org/a}]\n"
    recipes = [text, f"{text}tokenizer_source: banana\n"]
    told = []
    for text in recipes:
        monkeypatch.setattr(
            module, "_local_then_remote", lambda r, pins: ([], r.source_models[-1:])
        )
        with pytest.raises(Resumable) as stopped:
            open_sources(parse_recipe(text), {}, [], MetadataCache(tmp_path), offline=False)
        told.append(stopped.value.message)
    assert "names it at models[0].model, line 2" in told[0]
    assert "names it at tokenizer_source, line 3" in told[1]
    assert "'union' or 'base'" in told[1] and "'union'" not in told[0]


@pytest.mark.parametrize("offline", [False, True])
def test_a_misspelt_folder_is_told_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    def answer(*words: Any, **more: Any) -> None:
        if offline:
            raise refuse("not in the cache", where="models/mth", fix="go online")
        raise Resumable(Reason.NETWORK, "gone")

    monkeypatch.setattr(module, "open_source", answer)
    (tmp_path / "models" / "math").mkdir(parents=True)
    recipe = parse_recipe("merge_method: linear\nmodels: [{model: models/math+models/mth}]\n")
    with working_in(tmp_path), pytest.raises((Resumable, InputError)) as stopped:
        open_sources(recipe, {}, [], MetadataCache(tmp_path), offline=offline)
    assert "If models/mth is meant to be a folder" in str(stopped.value)
    assert "; there is models/math." in str(stopped.value)


@pytest.mark.parametrize(
    ("name", "is_doubted"), [("banana", True), ("org/banana", False), ("old-model", False)]
)
def test_a_word_that_is_no_model_of_the_recipe_is_told_before_the_hub_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_doubted: bool
) -> None:
    happened: list[str] = []

    def answer(ref: ModelRef, *words: Any, **more: Any) -> Source:
        happened.append(f"asked for {ref}")
        if ref.text == name:
            raise Resumable(Reason.NETWORK, "gone")
        return Source(ref=ref, kind="hub", folder=tmp_path, revision=None, config={}, tensors={})

    monkeypatch.setattr(module, "open_source", answer)
    text = f"merge_method: linear\nmodels: [{{model: old-model}}]\ntokenizer_source: {name}\n"
    with pytest.raises(Resumable):
        open_sources(
            parse_recipe(text), {}, [], MetadataCache(tmp_path), offline=False, note=happened.append
        )
    told = [said for said in happened if "is no model of the recipe" in said]
    assert bool(told) == is_doubted
    if is_doubted:
        assert happened[-2:] == [*told, "asked for banana"]
        assert "tokenizer_source, line 3" in told[0] and "'union' or 'base'" in told[0]
