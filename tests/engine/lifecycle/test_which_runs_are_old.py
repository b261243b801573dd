"""Promise: a run is as old as its last write; it is removed only if the options choose it."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import change
from merging import merge
from tiny_models import LLAMA, write_family

from resumerge.engine.lifecycle.old_runs import old_runs, remove_run
from resumerge.engine.resources.lock import output_lock, run_lock
from resumerge.errors import InputError
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.output_path import OutputPath
from resumerge.storage import Storage

HOUR = 3600.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_family(folder / "models", {**LLAMA, "num_hidden_layers": 1})
    recipe = "merge_method: passthrough\nmodels: [{model: math}]\n"
    merge(folder / "models", recipe, folder / "out", state_dir=folder / "state")
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> RunStore:
    """Make a run that is done, `done`, and one that is not, `half`, both written a day ago."""
    (run,) = RunStore(made / "state").runs()
    for name in ("done", "half"):
        shutil.copytree(made / "out", tmp_path / name)
        shutil.copytree(run, tmp_path / "state" / name)
        with closing(Ledger(tmp_path / "state" / name / LEDGER_FILE)) as ledger:
            state = "done" if name == "done" else "interrupted"
            moved = "UPDATE run SET id = ?, output = ?, state = ?"
            change(ledger.path, moved, [name, str(tmp_path / name), state])
            ledger.use_one_file()
        for path in (tmp_path / "state" / name).iterdir():
            age(path, 24 * HOUR)
    (tmp_path / "half" / "config.json").unlink()  # else the model would be whole
    return RunStore(tmp_path / "state")


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def chosen(runs: RunStore, *names: str, **words: object) -> list[str]:
    return sorted(run.id for run in old_runs(runs, names, **words))  # type: ignore[arg-type]


def test_only_what_is_done_is_chosen_unless_a_name_or_an_age_is_given(runs: RunStore) -> None:
    assert chosen(runs) == ["done"]
    assert chosen(runs, older=HOUR) == ["done", "half"]
    assert chosen(runs, older=0.0) == ["done", "half"]
    assert chosen(runs, older=HOUR, done=True) == ["done"]
    assert chosen(runs, "half") == ["half"]
    assert chosen(runs, "half", "half", "done") == ["done", "half"]
    assert chosen(runs, "half", done=True) == []
    assert chosen(runs, "half", older=48 * HOUR) == []


@pytest.mark.parametrize("name", [LEDGER_FILE, f"{LEDGER_FILE}-wal"])
def test_a_run_is_as_old_as_what_was_last_written(runs: RunStore, name: str) -> None:
    """The recipe of a run is never written again, and does not count."""
    (runs.folder / "half" / name).touch()
    with (runs.folder / "half" / name).open("ab") as file:
        file.write(b"" if name == LEDGER_FILE else b"\0")
    age(runs.folder / "half" / name, 0.5 * HOUR)
    assert chosen(runs, older=HOUR) == ["done"]
    assert chosen(runs, older=0.4 * HOUR) == ["done", "half"]


def test_who_read_it_did_not_make_it_younger(runs: RunStore) -> None:
    for name in (f"{LEDGER_FILE}-wal", f"{LEDGER_FILE}-shm"):
        (runs.folder / "half" / name).write_bytes(bytes(100) if "shm" in name else b"")
    assert chosen(runs, older=HOUR) == ["done", "half"]


def test_of_what_is_not_done_the_files_are_told_and_of_what_is_done_none(runs: RunStore) -> None:
    done, half = sorted(old_runs(runs, older=0.0), key=lambda run: run.id)
    assert (done.unfinished_bytes, list(done.unfinished)) == (0, [])
    files = {path.name: path.stat().st_size for path in (runs.folder.parent / "half").iterdir()}
    assert (half.unfinished_bytes, {*half.unfinished}) == (sum(files.values()), {*files})
    ledger = sum(path.stat().st_size for path in half.folder.iterdir() if "-" not in path.name)
    assert half.ledger_bytes >= ledger


@pytest.mark.parametrize("what", ["run", "output"])
def test_what_somebody_works_on_since_it_was_chosen_stays(runs: RunStore, what: str) -> None:
    [half] = old_runs(runs, ["half"])
    assert half.output is not None
    lock = run_lock(half.folder, half.id) if what == "run" else output_lock(OutputPath(half.output))
    with lock, pytest.raises(InputError):
        remove_run(half, Storage())
    assert (half.output / "model.safetensors").exists()
    assert [path.name for path in runs.runs()] == ["done", "half"]
    remove_run(half, Storage())
    assert list(half.output.iterdir()) == []
    assert [path.name for path in runs.runs()] == ["done"]
