"""Promise: `clean` asks, and removes runs that are of no more use; never a model, a file of the
user, or a run that a process works on.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from commands import resumerge
from terminals import ended, in_a_terminal

import resumerge as package
from resumerge.engine.resources.lock import run_lock
from resumerge.errors import InputError
from resumerge.options.types import parse_age


@pytest.fixture
def copied(place: Path, tmp_path: Path) -> Path:
    """Make a copy of the place, whose ledgers name the outputs in the copy."""
    for name in ("base", "math", "code", "done", "half"):
        shutil.copytree(place / name, tmp_path / name)
    shutil.copytree(place / "state", tmp_path / "state")
    shutil.copy(place / "linear.yaml", tmp_path)
    for run in (tmp_path / "state").iterdir():
        with closing(sqlite3.connect(run / "ledger.db")) as ledger:
            change = "UPDATE run SET output = replace(output, ?, ?)"
            ledger.execute(change, [str(place), str(tmp_path)])
            ledger.commit()
    return tmp_path


READERS = ("-wal", "-shm")
"""Whoever reads a ledger makes such files."""


def clean(folder: Path, *words: object) -> dict[str, dict[str, object]]:
    """Run `clean`, and return what it removed, by the names of the output folders."""
    done = resumerge("clean", *words, "--yes", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    removed = json.loads(done.stdout)["removed"]
    return {Path(run["output"]).name: run for run in removed}


def ledgers(folder: Path) -> set[str]:
    """Return the names of the output folders whose runs remain."""
    listed = json.loads(resumerge("status", "--json", cwd=folder).stdout)["runs"]
    return {Path(run["output"]).name for run in listed}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_runs_that_are_done_are_removed_and_their_models_stay(copied: Path) -> None:
    models = files(copied / "done"), files(copied / "half")
    removed = clean(copied)
    assert removed.keys() == {"done"}
    assert removed["done"]["unfinished_bytes"] == 0
    assert ledgers(copied) == {"half"}
    assert (files(copied / "done"), files(copied / "half")) == models


def test_an_unfinished_run_goes_only_by_its_name_with_what_it_left(copied: Path) -> None:
    mine = copied / "half" / "notes.txt"
    mine.write_text("of the user")
    assert any(path.suffix == ".partial" for path in (copied / "half").iterdir())
    removed = clean(copied, "half")
    assert removed.keys() == {"half"}
    assert removed["half"]["unfinished_bytes"]
    assert files(copied / "half") == {"notes.txt": b"of the user"}
    assert ledgers(copied) == {"done"}
    assert not list((copied / "state").glob("*.new"))


def test_only_what_is_old_is_removed(copied: Path) -> None:
    assert not clean(copied, "--older", "1h")
    for path in (copied / "state").glob("half*/*"):
        os.utime(path, (0, time.time() - 7200))
    assert not clean(copied, "--older", "1h", "--done")
    assert clean(copied, "--older", "1h").keys() == {"half"}


def test_nobody_is_there_to_be_asked(copied: Path) -> None:
    before = files(copied)
    for words in ([], ["--json"], ["half"]):
        refused = resumerge("clean", *words, cwd=copied)
        assert refused.returncode == 2
        assert "--yes" in refused.stderr
    assert resumerge("clean", "no-such-run", "--yes", cwd=copied).returncode == 2
    assert resumerge("clean", "--older", "soon", "--yes", cwd=copied).returncode == 2
    after = {name: data for name, data in files(copied).items() if not name.endswith(READERS)}
    assert after == {name: data for name, data in before.items() if not name.endswith(READERS)}


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_terminal_is_asked(copied: Path, answer: str) -> None:
    main, terminal = pty.openpty()
    words = [sys.executable, "-m", "resumerge", "clean", "half"]
    process = subprocess.Popen(
        words, cwd=copied, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    os.write(main, f"{answer}\n".encode())
    said = process.communicate()[0].decode()
    os.close(main)
    os.close(terminal)
    assert process.returncode == 0, said
    assert "of unfinished models)? [y/N]" in said
    assert ledgers(copied) == ({"done", "half"} if answer == "n" else {"done"})


def test_a_run_that_is_finished_while_the_question_is_open(copied: Path) -> None:
    pid, terminal = in_a_terminal([sys.executable, "-m", "resumerge", "clean", "half"], copied)
    said = b""
    while not said.endswith(b"[y/N]: "):
        said += os.read(terminal, 65536)
    finished = resumerge("resume", "half", cwd=copied)
    assert finished.returncode == 0, finished.stderr
    model = files(copied / "half")
    os.write(terminal, b"y\n")
    code, rest = ended(pid, terminal)
    assert code == 2
    assert "changed before it was removed" in rest
    assert files(copied / "half") == model


def test_a_model_that_a_run_of_another_state_folder_finished_stays(copied: Path) -> None:
    shutil.rmtree(copied / "half")
    again = resumerge("run", "linear.yaml", "half", "--state-dir", "other", cwd=copied)
    assert again.returncode == 0, again.stderr
    model = files(copied / "half")
    removed = clean(copied, "half")
    assert removed["half"]["unfinished_files"] == []
    assert files(copied / "half") == model
    assert ledgers(copied) == {"done"}


def test_a_link_to_a_run_is_removed_and_not_what_it_leads_to(copied: Path) -> None:
    [folder] = (copied / "state").glob("done*")
    folder.rename(copied / "elsewhere")
    (copied / "elsewhere" / "mine").touch()
    folder.symlink_to(copied / "elsewhere")
    assert clean(copied).keys() == {"done"}
    assert [path.name[:4] for path in (copied / "state").iterdir()] == ["half"]
    assert (copied / "elsewhere" / "mine").exists()


def test_a_run_that_a_process_works_on_stays(copied: Path) -> None:
    [folder] = (copied / "state").glob("done*")
    with run_lock(folder, folder.name):
        assert not clean(copied)
        named = resumerge("clean", folder.name, "--yes", cwd=copied)
        assert named.returncode == 2
        assert "A process is working on this run, so it is not removed" in named.stderr
    assert clean(copied).keys() == {"done"}


def test_a_damaged_ledger_is_removed_by_its_id(copied: Path) -> None:
    [folder] = (copied / "state").glob("done*")
    for path in folder.iterdir():
        if path.suffix == ".db":
            path.write_bytes(b"no ledger" * 100)
    model = files(copied / "done")
    assert not clean(copied), "it may not be done"
    done = resumerge("clean", folder.name, "--yes", cwd=copied)
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    assert files(copied / "done") == model


def test_a_program_is_not_asked(copied: Path) -> None:
    removed = package.clean(copied / "half", state_dir=copied / "state")
    assert [run["state"] for run in removed] == ["interrupted"]
    assert ledgers(copied) == {"done"}
    with pytest.raises(InputError, match="not an age"):
        package.clean(older="soon", state_dir=copied / "state")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("90m", 5400), ("12h", 43200), ("30d", 2592000), ("2W", 1209600)],
)
def test_ages(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "30", "-1d", "1.5d", "30 d", "٣d", "9999999d", "1y"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ValueError, match="age"):
        parse_age(text)
