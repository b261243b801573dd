"""Promise: a run exists with its whole plan or not at all, and continues with that plan."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import query
from merging import merge, shards_of, working_in
from ordered_storage import Ordered
from tiny_models import LLAMA, write_family

from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger
from resumerge.ledger.run_store import RECIPE_FILE, RunStore
from resumerge.options import Options

RECIPE = "merge_method: passthrough\nmodels: [{model: math}]\n"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path / "models", {**LLAMA, "num_hidden_layers": 1})


def test_the_ledger_is_durable_before_the_run_has_its_name(models: Path, tmp_path: Path) -> None:
    """A run gets its name when its snapshot and recipe are durable, and before it writes shards."""
    storage = Ordered()
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    with working_in(models):
        Session(Options(state_dir=tmp_path / "state"), storage=storage).run(
            tmp_path / "recipe.yaml", tmp_path / "out"
        )
    (run,) = RunStore(tmp_path / "state").runs()
    began = storage.done[: storage.done.index(f"rename to {run.name}")]
    for name in (SNAPSHOT_FILE, RECIPE_FILE):
        assert f"rename to {name}" in began
    assert began[-1] == f"sync {LEDGER_FILE}"
    assert not any("model.safetensors" in done for done in began)


def test_its_first_snapshot_has_the_whole_plan(models: Path, tmp_path: Path) -> None:
    class Stops(Ordered):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            if target.name == SNAPSHOT_FILE:
                raise KeyboardInterrupt

    (tmp_path / "recipe.yaml").write_text(RECIPE)
    mirror = str(tmp_path / "mirror")
    options = Options(state_dir=tmp_path / "state", mirror=mirror)
    with working_in(models), pytest.raises(KeyboardInterrupt):
        Session(options, storage=Stops()).run(tmp_path / "recipe.yaml", tmp_path / "out")
    (staged,) = RunStore(tmp_path / "state").staged()
    with closing(Ledger(staged / SNAPSHOT_FILE, read_only=True)) as snapshot:
        snapshot.check_rows()
        assert snapshot.run()["mirror"] == mirror
        assert [source["model"] for source in snapshot.sources()] == ["math"]
        assert all(json.loads(source["stamps"]) for source in snapshot.sources())


@pytest.mark.parametrize(("planned", "given"), [(5, 0), (0, 5), (None, 5), (5, 6)])
def test_another_seed_is_refused_whatever_number_it_is(
    models: Path, tmp_path: Path, planned: int | None, given: int
) -> None:
    """A seed of None, and no other, stands for the seed that the run was planned with."""
    out = merge(models, RECIPE, tmp_path / "out", seed=planned)
    (folder,) = RunStore(tmp_path / "out.state").runs()
    [row] = query(folder / LEDGER_FILE, "SELECT options FROM run")
    assert json.loads(row["options"])["seed"] == (planned or 0)
    (out / "model.safetensors").unlink()
    with pytest.raises(InputError, match=f"seed: {planned or 0} -> {given}"):
        merge(models, RECIPE, out, seed=given)
    merge(models, RECIPE, out)
    assert (out / "model.safetensors").exists()


def test_run_takes_the_models_that_the_recipe_names_now_and_resume_those_of_before(
    models: Path, tmp_path: Path
) -> None:
    """The commands are given in another folder, where the same name is another model."""
    out = merge(models, RECIPE, tmp_path / "out")
    before = shards_of(out)
    (out / "model.safetensors").unlink()
    other = Path(shutil.copytree(models, tmp_path / "other"))
    shutil.rmtree(other / "math")
    (other / "code").rename(other / "math")
    with pytest.raises(InputError, match="A source has changed"):
        merge(other, RECIPE, out)
    with working_in(other):
        Session(Options(state_dir=tmp_path / "out.state")).resume(str(out))
    assert shards_of(out) == before
