"""Promise: a run does not continue with a ledger whose output is not that of its recipe."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import change
from merging import merge, working_in
from tiny_models import LLAMA, write_family

from resumerge.engine.checks.drift import check_source_drift
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import estimate
from resumerge.recipe import parse_recipe
from resumerge.storage import Storage

RECIPE = "merge_method: passthrough\nmodels: [{model: math}]\n"
SIZE = 8000

OTHERS = {
    "shards.name": "UPDATE shards SET name = 'model-00009-of-00009.safetensors' WHERE number = 1",
    "shards.nbytes": "UPDATE shards SET nbytes = nbytes + 1 WHERE number = 1",
    "shards.header_bytes": "UPDATE shards SET header_bytes = header_bytes + 1 WHERE number = 1",
    "a shard too few": "DELETE FROM shards WHERE number = (SELECT max(number) FROM shards)",
    "units.name": "UPDATE units SET name = name || 's' WHERE number = 3",
    "units.shard": "UPDATE units SET shard = shard + 1 WHERE number = 3",
    "units.offset": "UPDATE units SET offset = offset + 1 WHERE number = 3",
    "units.nbytes": "UPDATE units SET nbytes = nbytes + 1 WHERE number = 3",
    "units.blocks": "UPDATE units SET blocks = blocks + 1 WHERE number = 3",
    "units.number": "UPDATE units SET number = 1000 WHERE number = (SELECT max(number) FROM units)",
    "a tensor too few": "DELETE FROM units WHERE number = (SELECT max(number) FROM units)",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a finished run, `out`, beside its models."""
    folder = tmp_path_factory.mktemp("made")
    write_family(folder / "models", {**LLAMA, "num_hidden_layers": 1})
    merge(folder / "models", RECIPE, folder / "out", shard_size=SIZE)
    return folder


def check(made: Path, ledger: Path) -> None:
    options, runs = Options(shard_size=SIZE), RunStore(ledger.parent)
    context = RunContext(options, Reporter(), Storage(), StopRequest(), runs)
    with working_in(made / "models"), closing(Ledger(ledger)) as opened:
        plan = Session(options).plan(parse_recipe(RECIPE))
        check_source_drift(context, opened.run(), plan, estimate(plan), opened)


@pytest.fixture
def ledger(made: Path, tmp_path: Path) -> Path:
    (run,) = RunStore(made / "out.state").runs()
    return Path(shutil.copy(run / LEDGER_FILE, tmp_path))


def test_its_own_fits(made: Path, ledger: Path) -> None:
    check(made, ledger)


@pytest.mark.parametrize("other", OTHERS)
def test_another_does_not(made: Path, ledger: Path, other: str) -> None:
    change(ledger, OTHERS[other])
    with pytest.raises(InputError, match="The ledger does not match its recipe"):
        check(made, ledger)
