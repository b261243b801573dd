"""Promise: `status` and `verify` know a run's mirror, and a mirror without a run here."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from ledger_rows import change
from made_up_mirrors import RECIPE, put
from merging import merge, working_in
from rich.console import Console

import resumerge
from resumerge.cli.main import app
from resumerge.errors import InputError, Resumable
from resumerge.ledger import Ledger, now
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.lease_record import LeaseRecord
from resumerge.mirror.names import lease_name
from resumerge.ui.html.page import page
from resumerge.ui.terminal.status import show_run


def shown(run: dict) -> str:
    """Return the status of a run as a terminal shows it."""
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(show_run(run))
    return console.export_text()


@pytest.fixture
def freed(made: Path, tmp_path: Path) -> Path:
    """Make a finished run, whose shards are in the mirror alone."""
    return merge(
        made / "models", RECIPE, tmp_path / "out", shard_size=8000,
        mirror=str(tmp_path / "mirror"), mirror_then_delete=True,
    )  # fmt: skip


def test_a_run_with_a_mirror(freed: Path) -> None:
    state = freed.with_name("out.state")
    [run] = resumerge.status(freed, state_dir=state)["runs"]
    mirror = freed.with_name("mirror")
    shards = list(mirror.glob("*.safetensors"))
    assert not list(freed.glob("*.safetensors"))
    assert run["mirror"] == {
        "url": str(mirror),
        "shards": len(shards),
        "bytes": sum(path.stat().st_size for path in shards),
        "failing": None,
        "here": True,
        "held_by": None,
    }
    assert f"{mirror}: {len(shards)} of {len(shards)} shards" in shown(run)
    assert str(mirror) in page(run)


def test_a_mirror_that_fails_is_told(freed: Path) -> None:
    state = freed.with_name("out.state")
    (folder,) = RunStore(state).runs()
    with closing(Ledger(folder / "ledger.db")) as ledger:
        ledger.set_state("interrupted")
        ledger.events.add("mirror_failing", reason="Transport endpoint is not connected")
    [run] = resumerge.status(freed, state_dir=state)["runs"]
    assert run["mirror"]["failing"] == "Transport endpoint is not connected"
    assert "Transport endpoint" in shown(run)
    with closing(Ledger(folder / "ledger.db")) as ledger:
        ledger.events.add("mirror_recovered")
    assert resumerge.status(freed, state_dir=state)["runs"][0]["mirror"]["failing"] is None


def test_a_run_without_one_and_a_ledger_from_before_there_were_mirrors(
    made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made / "merged.state", tmp_path / "state")
    (folder,) = RunStore(tmp_path / "state").runs()
    [run] = resumerge.status(folder.name, state_dir=tmp_path / "state")["runs"]
    assert run["mirror"] is None
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        db.executescript(
            "ALTER TABLE run DROP COLUMN mirror; DROP TABLE mirrored; PRAGMA journal_mode=DELETE"
        )
    with closing(Ledger(folder / "ledger.db", read_only=True)) as ledger:
        assert ledger.mirrored.checksums() == {}
    before = (folder / "ledger.db").read_bytes()
    [run] = resumerge.status(folder.name, state_dir=tmp_path / "state")["runs"]
    assert run["mirror"] is None
    assert run["state"] == "done"
    assert run["id"] in shown(run)
    assert (folder / "ledger.db").read_bytes() == before, "it is only looked at"
    assert resumerge.verify(folder.name, state_dir=tmp_path / "state").intact


def test_a_mirror_alone(made: Path, there: Path) -> None:
    put(made, there)
    [run] = resumerge.status(there, state_dir=there.parent / "none")["runs"]
    assert run["state"] == "interrupted"
    assert run["units"]["committed"] == run["units"]["total"] == 21
    assert run["mirror"]["here"] is False
    told = shown(run)
    assert f"resumerge resume {there}" in told
    assert "resumerge resume" in page(run)
    assert not (there.parent / "none").exists()
    put(made, there, "DELETE FROM mirrored WHERE name LIKE '%00001-of%'", number=2)
    shards = len(list(there.glob("*.safetensors")))
    [run] = resumerge.status(there)["runs"]
    assert run["mirror"]["shards"] == shards - 1
    assert f"{shards - 1} of {shards} shards" in shown(run)


def test_the_commands_take_a_mirror(made: Path, there: Path) -> None:
    put(made, there)
    run = CliRunner().invoke
    assert f"resumerge resume {there}" in run(app, ["status", str(there)]).stdout
    html = there.parent / "page.html"
    assert run(app, ["status", str(there), "--html", str(html)]).exit_code == 0
    assert str(there) in html.read_text()
    assert run(app, ["verify", str(there)]).exit_code == 0
    next(iter(there.glob("*.safetensors"))).unlink()
    found = run(app, ["verify", str(there), "--json"])
    assert found.exit_code == 75
    assert '"intact": false' in found.stdout


def test_a_mirror_that_another_machine_works_on(made: Path, there: Path) -> None:
    put(made, there)
    holder = LeaseRecord("run", "x", "elsewhere", "boot", "pids", 77, 1, 1, now(), 40.0)
    (there / lease_name(1)).write_bytes(holder.as_bytes())
    [run] = resumerge.status(there)["runs"]
    assert run["state"] == "running"
    assert run["mirror"]["held_by"] == "pid 77 on elsewhere"
    assert "pid 77 on elsewhere" in shown(run)


def test_a_finished_mirror_alone(freed: Path) -> None:
    mirror = freed.with_name("mirror")
    [run] = resumerge.status(mirror)["runs"]
    assert run["state"] == "done"
    assert run["output"] == str(mirror)
    assert run["bytes"]["total"] == run["mirror"]["bytes"] > 30_000
    assert run["units"] == {"total": 21, "committed": 21}
    [attempt] = run["attempts"]
    assert (attempt["outcome"], attempt["units_committed"]) == ("done", 21)
    assert attempt["peak_rss"] == run["memory"]["peak_rss"] > 10_000_000
    told = shown(run)
    assert "21 of 21 tensors" in told
    assert "Done in 1 attempt." in told
    assert str(mirror) in page(run)
    assert "bucket" not in told.lower() + page(run).lower(), "it is a folder"
    found = resumerge.verify(mirror)
    files = len([path for path in mirror.iterdir() if path.is_file()])
    assert found.intact
    assert found.as_json()["mirror"] == str(mirror)
    assert found.as_json()["units"] == {"compared": 21, "pending": 0}
    assert found.as_json()["files"] == found.files > 5
    said = CliRunner().invoke(app, ["verify", str(mirror)]).stdout
    assert f"intact, 21 tensors in {found.files} files compared" in said
    assert found.files in (files, files - 1), "the model card may be the user's"


def test_no_run_in_it(tmp_path: Path) -> None:
    (tmp_path / ".resumerge").mkdir()
    for twin in (resumerge.status, resumerge.verify):
        with pytest.raises(InputError, match="no run in this mirror"):
            twin(tmp_path)


def test_damage_in_the_mirror_of_a_run_here_is_found_and_mended(made: Path, freed: Path) -> None:
    state, mirror = freed.with_name("out.state"), freed.with_name("mirror")
    assert resumerge.verify(freed, state_dir=state).intact
    shard = next(iter(sorted(mirror.glob("*.safetensors"))))
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = resumerge.verify(freed, state_dir=state)
    assert found.damaged
    assert all(f"{shard.name} in {mirror} differs" == what for what in found.damaged.values())
    assert resumerge.verify(mirror).damaged == {shard.name: "its content differs"}
    with working_in(made / "models"):
        resumerge.resume(freed, state_dir=state)
    assert shard.read_bytes() == data
    assert resumerge.verify(mirror).intact
    assert resumerge.verify(freed, state_dir=state).intact


def test_damage_in_a_mirror_alone(made: Path, there: Path) -> None:
    put(made, there)
    assert resumerge.verify(there).intact
    shard = next(iter(sorted(there.glob("*.safetensors"))))
    shard.unlink()
    found = resumerge.verify(there)
    assert found.damaged == {shard.name: "it is missing"}
    assert json.loads(json.dumps(found.as_json()))["intact"] is False


def test_what_an_unfinished_mirror_lacks_is_pending_and_no_damage(made: Path, there: Path) -> None:
    """A damaged file counts among the compared ones; its bytes do not count."""
    put(made, there, "DELETE FROM mirrored WHERE name LIKE '%00001-of%'")
    (run,) = RunStore(made / "merged.state").runs()
    with closing(Ledger(run / "ledger.db", read_only=True)) as ledger:
        pending = len(ledger.units.all(0))
        _, *rest = ledger.shards.all()
    assert 0 < pending < 21 and len(rest) > 2
    nbytes = sum(shard["nbytes"] for shard in rest)
    for damaged in ({}, {rest[0]["name"]: "it is missing"}):
        if damaged:
            (there / rest[0]["name"]).unlink()
            nbytes -= rest[0]["nbytes"]
        found = resumerge.verify(there)
        assert (found.units, found.pending, found.files) == (21 - pending, pending, len(rest))
        assert (found.damaged, found.nbytes, found.marked) == (damaged, nbytes, False)
        assert not found.remake


def test_a_mirror_that_is_away_is_no_damage(freed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resumerge.mirror.stores.base.Store.patience", 0.3)
    state, mirror = freed.with_name("out.state"), freed.with_name("mirror")
    mirror.rename(mirror.with_name("unmounted"))
    mirror.write_text("no folder")
    with pytest.raises(Resumable):
        resumerge.verify(freed, state_dir=state)
    mirror.unlink()
    mirror.with_name("unmounted").rename(mirror)
    assert resumerge.verify(freed, state_dir=state).intact


def test_what_was_found_wrong_here_is_not_taken_from_the_mirror(made: Path, there: Path) -> None:
    """The mirror's snapshot is older than the finding."""
    put(made, there)
    state = there.parent / "state"
    shutil.copytree(made / "merged.state", state)
    (folder,) = RunStore(state).runs()
    out = there.parent / "out"
    shutil.copytree(made / "merged", out)
    with closing(Ledger(folder / "ledger.db")) as ledger:
        change(ledger.path, "UPDATE run SET output = ?, mirror = ?", [str(out), str(there)])
        wrong = [unit["number"] for unit in ledger.units.all(1)]
        ledger.units.forget(wrong, "source_damaged")
        ledger.set_state("interrupted")
    with working_in(made / "models"):
        resumerge.resume(out, state_dir=state)
    with closing(Ledger(folder / "ledger.db", read_only=True)) as ledger:
        kinds = [event["kind"] for event in ledger.events.all()]
        last = ledger.attempts.all()[-1]
    assert "shard_from_mirror" not in kinds
    assert last["units_committed"] == len(wrong)
    assert resumerge.verify(there).intact


def test_a_finished_model_is_not_brought_over_files_of_others(
    made: Path, freed: Path, tmp_path: Path
) -> None:
    mirror, here = freed.with_name("mirror"), tmp_path / "here"
    here.mkdir()
    (here / "config.json").write_text("mine")
    with pytest.raises(InputError, match=r"config\.json"):
        resumerge.resume(mirror, bring_back=True, output=here, state_dir=tmp_path / "none")
    assert (here / "config.json").read_text() == "mine"
    (here / "config.json").unlink()
    for _ in range(2):  # and what it brought itself does not hinder it
        resumerge.resume(mirror, bring_back=True, output=here, state_dir=tmp_path / "none")
    assert (here / "config.json").read_bytes() == (mirror / "config.json").read_bytes()
    assert len(list(here.glob("*.safetensors"))) == len(list(mirror.glob("*.safetensors")))
