"""Promise: a run takes over a model of a sweep only if it would compute the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from merging import working_in
from tiny_models import TWO_LAYERS, write_family

import resumerge
from resumerge.engine.checks import disk
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.swept_model import SweptModel
from resumerge.errors import InputError
from resumerge.host.machine import FREE_FOR_COMPANIONS
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options

RECIPE = """\
merge_method: linear
models:
  - {model: math, parameters: {weight: 0.25}}
  - {model: code, parameters: {weight: 1}}
"""
SWEEP = RECIPE + "sweep: {'models[0].parameters.weight': [0.25, 0.75]}\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_family(tmp_path, TWO_LAYERS)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    with working_in(tmp_path):
        Session(Options(state_dir=tmp_path / "state")).run(
            tmp_path / "sweep.yaml", tmp_path / "all"
        )
    return tmp_path


def run(place: Path, name: str = "weight-0.25") -> bool:
    """Run the recipe; return whether the run took over a variant. The output must be right."""
    [sweep] = RunStore(place / "state").of_output(place / "all")
    with working_in(place):
        result = Session(Options(state_dir=place / "state")).run(
            place / "recipe.yaml", place / "out" / "model", SweptModel(sweep, name)
        )
        Session(Options(state_dir=place / "other")).run(place / "recipe.yaml", place / "alone")
    assert result.ledger is not None
    weights = [folder / "model.safetensors" for folder in (place / "out/model", place / "alone")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert resumerge.verify(place / "out/model", state_dir=place / "state").damaged == {}
    with closing(Ledger(result.ledger, read_only=True)) as ledger:
        taken = "shard_of_sweep" in [event["kind"] for event in ledger.events.all()]
    assert taken != (place / "all" / name / "model.safetensors").exists()
    return taken


def test_its_own_variant(place: Path) -> None:
    assert run(place)
    changes = resumerge.status(place / "out/model", state_dir=place / "state")["runs"][0]
    alone = resumerge.status(place / "alone", state_dir=place / "other")["runs"][0]
    assert changes["accounts"] == alone["accounts"]


def _another_source(place: Path) -> None:
    write_family(place / "new", TWO_LAYERS)
    (place / "new" / "base" / "model.safetensors").replace(place / "math" / "model.safetensors")


def _a_damaged_ledger(place: Path) -> None:
    [ledger] = (place / "state").glob("*/ledger.db")
    with ledger.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (ledger.stat().st_size - 4096))


@pytest.mark.parametrize(
    "change",
    [
        lambda place: (place / "recipe.yaml").write_text(RECIPE.replace("0.25", "0.3")),
        lambda place: (place / "recipe.yaml").write_text(RECIPE + "dtype: bfloat16\n"),
        _another_source,
        _a_damaged_ledger,
    ],
    ids=["weight", "dtype", "source", "ledger"],
)
def test_not_what_it_would_compute_otherwise(change: Callable[[Path], object], place: Path) -> None:
    change(place)
    assert not run(place)


def test_not_another_variant(place: Path) -> None:
    assert not run(place, "weight-0.75")


def test_it_needs_no_space_of_its_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda folder: FREE_FOR_COMPANIONS)
    with pytest.raises(InputError, match="too small"), working_in(place):
        Session(Options(state_dir=place / "state")).run(place / "recipe.yaml", place / "alone")
    [sweep] = RunStore(place / "state").of_output(place / "all")
    with working_in(place):
        Session(Options(state_dir=place / "state")).run(
            place / "recipe.yaml", place / "out", SweptModel(sweep, "weight-0.25")
        )
