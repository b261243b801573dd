"""Promise: a ledger from a mirror keeps what the mirror has, and forgets what was elsewhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import change, query
from merging import merge, working_in
from ordered_storage import Ordered
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.lifecycle.import_run import localize, output_of_imported
from resumerge.errors import InputError
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger
from resumerge.ledger.run_store import RECIPE_FILE, RunStore
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.storage import Storage

RECIPE = (
    "merge_method: linear\nmodels: [{model: base}, {model: math}]\n"
    "parameters: {weight: 0.5}\ndtype: float32\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the ledger of a finished run of several shards."""
    models = write_family(tmp_path / "models", TWO_LAYERS)
    merge(models, RECIPE, tmp_path / "out", shard_size=16000)
    (run,) = RunStore(tmp_path / "out.state").runs()
    folder = tmp_path / "copied"
    folder.mkdir()
    with closing(sqlite3.connect(run / LEDGER_FILE)) as db:
        db.execute("VACUUM INTO ?", [str(folder / LEDGER_FILE)])
    return folder


def moved(folder: Path, *mirrored: int) -> Ledger:
    """Record that these shards are in the mirror, make the ledger local, and open it."""
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        ledger.set_mirror("/their/mirror")
        for number in mirrored:
            shard = ledger.shards.all()[number]
            ledger.mirrored.record(shard["name"], shard["nbytes"], "a" * 64)
    localize(folder, folder.parent / "home", folder.parent / "here", "/my/mirror", Storage())
    return Ledger(folder / LEDGER_FILE)


def test_only_what_the_mirror_has_is_committed(folder: Path) -> None:
    with closing(moved(folder, 0, 2)) as ledger:
        states = [shard["state"] for shard in ledger.shards.all()]
        assert len(states) > 3
        assert states == ["sealed", "open", "sealed"] + ["open"] * (len(states) - 3)
        for unit in ledger.units.all():
            assert bool(unit["checksum"]) == (unit["shard"] in (0, 2))
        run, [event] = ledger.run(), ledger.events.all("moved_here")
        assert event["data"]["shards"] == 2
        pending = [unit for unit in ledger.units.all() if not unit["checksum"]]
        assert event["data"]["units"] == len(pending)
    assert run["output"] == str(folder.parent / "here")
    assert run["config_path"] == str(folder.parent / "home" / RECIPE_FILE)
    assert (run["mirror"], run["state"]) == ("/my/mirror", "interrupted")
    assert (folder / RECIPE_FILE).read_text() == RECIPE
    assert query(folder / SNAPSHOT_FILE, "SELECT output FROM run") == [
        {"output": str(folder.parent / "here")}
    ]


def test_it_is_durable_before_its_folder_can_have_its_name(folder: Path) -> None:
    storage = Ordered()
    localize(folder, folder.parent / "home", folder.parent / "here", "/my/mirror", storage)
    assert storage.done[-2:] == [f"rename to {RECIPE_FILE}", f"sync {LEDGER_FILE}"]
    assert f"rename to {SNAPSHOT_FILE}" in storage.done


def test_what_was_not_sealed_there_is_not_kept_though_the_mirror_has_such_a_file(
    folder: Path,
) -> None:
    change(folder / LEDGER_FILE, "UPDATE shards SET state = 'open', sealed_at = NULL "
           "WHERE number = 0")  # fmt: skip
    with closing(moved(folder, 0, 1)) as ledger:
        assert [shard["state"] for shard in ledger.shards.all()][:2] == ["open", "sealed"]
        assert {unit["shard"] for unit in ledger.units.all() if unit["checksum"]} == {1}


def test_a_local_model_is_looked_for_where_the_recipe_names_it(folder: Path) -> None:
    """A model that is gone gets the recipe's folder if it is there; else it keeps its own."""
    models = folder.parent / "models"
    change(folder / LEDGER_FILE, "UPDATE sources SET folder = '/gone/' || model")
    (models / "math").rename(models / "elsewhere")
    with working_in(models), closing(moved(folder, 0)) as ledger:
        folders = {row["model"]: row["folder"] for row in ledger.sources()}
    assert folders == {"base": str(models / "base"), "math": "/gone/math"}


def test_a_local_model_that_is_where_it_was_stays_there(folder: Path) -> None:
    models = folder.parent / "models"
    other = write_family(folder.parent / "other", TWO_LAYERS)
    with working_in(other), closing(moved(folder, 0)) as ledger:
        folders = {row["model"]: row["folder"] for row in ledger.sources()}
    assert folders == {name: str(models / name) for name in ("base", "math")}


def test_the_output_has_the_name_that_it_had_or_one_that_is_given(tmp_path: Path) -> None:
    record = {"id": "run", "output": "/there/merged"}
    with working_in(tmp_path):
        assert output_of_imported(record, Options()) == OutputPath(tmp_path / "merged")
        named = Options(output=Path("named"))
        assert output_of_imported(record, named) == OutputPath(tmp_path / "named")
    for name in ("/", "/there/.hidden", "/there/.."):
        with pytest.raises(InputError, match="--output"):
            output_of_imported({**record, "output": name}, Options())
