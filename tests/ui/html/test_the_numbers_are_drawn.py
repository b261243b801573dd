"""Promise: the page of a run shows what happened to the numbers, and the warnings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from merging import merge
from rich.console import Console
from tiny_models import LLAMA, write_family

from resumerge.documents.status import status_json
from resumerge.ledger.run_store import RunStore
from resumerge.ui.html.page import page
from resumerge.ui.terminal.status import show_run

RECIPE = """
merge_method: task_arithmetic
base_model: base
dtype: bfloat16
models:
  - {model: math, parameters: {weight: 1e-6}}
  - {model: code, parameters: {weight: 1e-6}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


def run_of(out: Path) -> dict[str, Any]:
    [run] = status_json(RunStore(out.with_name(out.name + ".state")), None)["runs"]
    found: dict[str, Any] = run
    return found


def test_each_kind_of_tensor_has_a_strip_for_each_model(models: Path, tmp_path: Path) -> None:
    run = run_of(merge(models, RECIPE, tmp_path / "out"))
    text = page(run)
    kinds = 9  # of tensors in a layer of a llama
    assert text.count('class="strip rate"') == 2 * kinds
    assert text.count('class="strip lost"') == kinds
    layers = LLAMA["num_hidden_layers"]
    assert len(re.findall(r"model\.layers\.\d+\.mlp\.up_proj\.weight: 100\.0% of", text)) == layers
    assert len(run["accounts"]["warnings"]) == 2
    console = Console(width=1000)
    with console.capture() as shown:
        console.print(show_run(run))
    for warning in run["accounts"]["warnings"]:
        assert warning in shown.get()
        assert warning.replace("'", "&#39;") in text
    assert "math: about" in shown.get()


def test_nothing_is_drawn_where_nothing_was_measured(models: Path, tmp_path: Path) -> None:
    text = page(run_of(merge(models, RECIPE, tmp_path / "out", no_accounts=True)))
    assert "What happened to the numbers" not in text
    assert "Warnings about the numbers" not in text
