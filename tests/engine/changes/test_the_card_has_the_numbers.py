"""Promise: the model card says what a merge changed, in the numbers that the status has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from merging import merge
from tiny_models import LLAMA, write_family

from resumerge.documents.status import status_json
from resumerge.ledger.run_store import RunStore

TIES = """
merge_method: ties
base_model: base
dtype: bfloat16
models:
  - {model: math, parameters: {weight: 0.6, density: 0.5}}
  - {model: code, parameters: {weight: 0.4, density: 0.3}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


def section(out: Path) -> str:
    card = (out / "README.md").read_text()
    return card.partition("## What changed\n")[2].partition("\n## Recipe")[0]


def rows(out: Path) -> list[list[str]]:
    table = [line for line in section(out).splitlines() if line.startswith("|")]
    return [[cell.strip(" |`") for cell in line.split(" | ")] for line in table[2:]]


def numbers(out: Path) -> dict[str, Any]:
    [run] = status_json(RunStore(out.with_suffix(".state")), None)["runs"]
    found: dict[str, Any] = run["accounts"]["numbers"]
    return found


def test_a_row_for_each_model(models: Path, tmp_path: Path) -> None:
    out = merge(models, TIES, tmp_path / "out")
    expected = [
        [
            model["model"],
            model["reference"],
            str(model["tensors"]),
            str(model["exact"]["equal"]),
            f"{model['estimate']['differs']:.1%}",
            f"{model['estimate']['cosine']:.3f}",
        ]
        for model in numbers(out)["models"]
    ]
    assert rows(out) == expected and len(expected) == 2
    moved = numbers(out)["estimate"]["moved"]
    assert f"Of the elements, {moved:.1%} were to change." in section(out)
    assert "took" not in section(out), "nothing is lost to rounding"


def test_what_rounding_took_is_said(models: Path, tmp_path: Path) -> None:
    tiny = TIES.replace("0.6", "1e-6").replace("0.4", "1e-6") + "parameters: {normalize: false}\n"
    out = merge(models, tiny, tmp_path / "out")
    estimate = numbers(out)["estimate"]
    assert (
        f"Rounding to BF16 took {estimate['lost']:.1%} of these changes away; the whole change has "
        f"{estimate['survived']:.1%} of its length."
    ) in section(out)


def test_none_where_nothing_was_measured_or_compared(models: Path, tmp_path: Path) -> None:
    assert not section(merge(models, TIES, tmp_path / "out", no_accounts=True))
    alone = "merge_method: passthrough\nmodels: [{model: base}]\n"
    assert not section(merge(models, alone, tmp_path / "alone"))


def test_a_kept_stage_does_not_count_as_the_model(models: Path, tmp_path: Path) -> None:
    stage = TIES.lstrip() + "name: first\n"
    last = "merge_method: linear\ndtype: bfloat16\nmodels:\n" + "".join(
        f"  - {{model: {name}, parameters: {{weight: 0.5}}}}\n" for name in ("first", "code")
    )
    out = merge(models, f"{stage}---\n{last}", tmp_path / "out", keep=("first",))
    assert [row[:2] for row in rows(out)] == [["code", "first"]]
    assert not section(out / "stages" / "first")


def test_a_name_ends_no_cell(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models, tmp_path / "models")
    (tmp_path / "models" / "math").rename(tmp_path / "models" / "a|b")
    out = merge(tmp_path / "models", TIES.replace("model: math", "model: 'a|b'"), tmp_path / "out")
    assert r"| `a\|b` | `base` |" in section(out)
