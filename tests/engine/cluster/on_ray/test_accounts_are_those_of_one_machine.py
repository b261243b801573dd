"""Promise: a merge over Ray has the accounts of tensors and of numbers of one machine."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import RayCluster, counted, state_of
from measurements import measurements
from merging import merge, shards_of
from shard_tasks import STAGES, TIES
from stage_recipes import write_adapter
from tiny_models import LLAMA, write_family

from resumerge.documents.status import status_json
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore

ADAPTED = "merge_method: passthrough\ndtype: bfloat16\nmodels: [{model: math+adapter}]\n"
MIXED = TIES.format(method="dare_ties").replace("model: code", "model: code+adapter")
SMALL = TIES.format(method="task_arithmetic").replace("0.6", "1e-6").replace("0.4", "1e-6")
LOST = SMALL + "dtype: bfloat16\nparameters: {normalize: false}\n"
SHARD_SIZE = 8_000
"""The shard size in bytes; every recipe has three shards or more."""

RECIPES = {"adapted": ADAPTED, "mixed": MIXED, "lost to rounding": LOST, "stages": STAGES}


@pytest.fixture(scope="module")
def with_adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = write_family(tmp_path_factory.mktemp("models"), LLAMA)
    write_adapter(models / "adapter")
    return models


def rows(out: Path) -> list[dict[str, Any]]:
    """Return the accounts of tensors in the ledger of a run."""
    [path] = state_of(out).glob(f"*/{LEDGER_FILE}")
    with closing(Ledger(path, read_only=True)) as ledger:
        return [dict(row) for row in ledger.accounts()]


def shown(out: Path) -> dict[str, Any]:
    """Return the accounts of tensors and numbers in the status of a run."""
    [run] = status_json(RunStore(state_of(out)), None)["runs"]
    found: dict[str, Any] = run["accounts"]
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_every_number_is_the_same(
    name: str, cluster: RayCluster, with_adapter: Path, tmp_path: Path
) -> None:
    recipe, size = RECIPES[name], {"shard_size": SHARD_SIZE}
    alone = merge(with_adapter, recipe, tmp_path / "alone", **size)
    by_ray = merge(with_adapter, recipe, tmp_path / "ray", **size, ray=cluster.address, threads=1)
    assert shards_of(by_ray) == shards_of(alone)
    assert counted(by_ray)["task_finished"] == len(shards_of(alone)) > 2
    assert rows(by_ray) == rows(alone) != []
    found = measurements(state_of(by_ray))
    assert found == measurements(state_of(alone)) != {}
    assert shown(by_ray) == shown(alone)
    assert bool(shown(by_ray)["warnings"]) == (name == "lost to rounding")
