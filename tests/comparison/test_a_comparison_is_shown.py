"""Promise: terminals, pages, notebooks and programs show what a comparison found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from compared import changed, drawn, write
from rich.console import Console
from tiny_models import LLAMA

import resumerge
from resumerge.cli.compare import command

PAPER = "arXiv 2601.22285"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write `base`, `math` and `code`, and make their folder the working folder."""
    base = drawn()
    write(tmp_path / "base", base)
    write(tmp_path / "math", changed(base, 1), config={**LLAMA, "rope_theta": 5e5})
    write(tmp_path / "code", changed(base, 2) | {"model.norm.weight": base["model.norm.weight"]})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(command, words, standalone_mode=True)


def test_on_a_terminal(place: Path) -> None:
    done = call("math", "code", "--base", "base")
    assert done.exit_code == 0, done.output
    shown = capture(resumerge.compare("math", "code", base="base"))
    for said in (
        "math beside base: different",
        "code beside math: different",
        "1 of 39 tensors is equal in every number",
        "rope_theta (– | 500000.0 | –)",
        "self_attn.q_proj",
        "relative L2 by layer",
        "sign conflict",
        PAPER,
    ):
        assert said in shown, shown


def capture(found: Any) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(found)
    return captured.get()


def test_to_programs(place: Path) -> None:
    done = call("math", "code", "--base", "base", "--json")
    document = json.loads(done.stdout)
    assert document == resumerge.compare("math", "code", base="base")
    assert document.keys() == {"models", "config", "pairs", "task_vectors", "notes"}
    assert [model["role"] for model in document["models"]] == ["base", "model", "model"]
    assert document["pairs"][0].keys() == {
        *("first", "second", "relation", "findings", "only_first", "only_second"),
        *("not_comparable", "vocabulary", "total", "by_layer", "by_kind", "tensors"),
    }
    figures = {"elements", "differing", "l2", "relative_l2", "max_abs", "cosine"}
    assert document["pairs"][0]["tensors"][0].keys() == {
        *("name", "layer", "kind", "shape", "dtypes", "rows", "relation", "details"),
        *figures,
    }
    assert document["pairs"][0]["total"].keys() == {"tensors", "relations", *figures}
    assert document["task_vectors"].keys() == {
        *("models", "tensors", "norms", "cosine", "sign_conflict", "both_changed", "by_layer"),
    }


def test_on_a_page(place: Path) -> None:
    done = call("math", "code", "--base", "base", "--html", "page.html")
    assert (done.exit_code, done.stdout.strip()) == (0, str(place / "page.html"))
    page = (place / "page.html").read_text()
    assert page.startswith("<!doctype html>") and "default-src 'none'" in page
    for said in ("math beside base", "rope_theta", "Task vectors", PAPER, "self_attn.q_proj"):
        assert said in page
    assert call("math", "code", "--html", "page.html").exit_code == 0, "it replaces a page"
    (place / "mine.html").write_text("mine")
    refused = call("math", "code", "--html", "mine.html")
    assert refused.exit_code != 0 and (place / "mine.html").read_text() == "mine"
    assert not (place / "state").exists() or not [*(place / "state/comparisons").iterdir()]


def test_names_stay_text(place: Path) -> None:
    evil = "<script>alert(1)<script>"
    write(place / "evil", drawn() | {f"model.{evil}.weight": drawn()["model.norm.weight"]})
    shown = resumerge.compare("base", "evil")._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;" in shown


def test_in_a_notebook(place: Path) -> None:
    found = resumerge.compare("base", "math")
    assert found["pairs"][0]["relation"] == "different"
    assert "math beside base" in found._repr_html_()
    assert "math beside base" in capture(found)


@pytest.mark.parametrize(
    ("models", "options", "said"),
    [
        (["base"], {}, "There is nothing to compare with"),
        (["base", "org/absent"], {"offline": True}, "org/absent"),
        (["base", "not a model"], {}, "neither a folder nor the name of a model"),
    ],
)
def test_what_is_no_model_is_refused(
    models: list[str], options: dict[str, Any], said: str, place: Path
) -> None:
    with pytest.raises(resumerge.InputError) as refused:
        resumerge.compare(*models, **options)
    assert said in str(refused.value)
    assert not (place / "state/comparisons").exists()
