"""Promise: a comparison that is killed goes on where it was, and gives the same document."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compared import changed, compare, drawn, write

from resumerge.comparison import journal as journals
from resumerge.comparison.tensor import TensorComparison
from resumerge.errors import InputError, Resumable

KILLED = """
import os, signal
from resumerge.comparison.journal import Journal
add = Journal.add
def counted(self, name, row):
    add(self, name, row)
    if len(self.rows) == {rows}:
        os.kill(os.getpid(), signal.{signal})
Journal.add = counted
"""


def command(place: Path, *words: object, before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{before}\nfrom resumerge.cli.main import main\nmain()"
    words = ("compare", *words, "--threads", 1, "--state-dir", place / "state")
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=place,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    base = drawn()
    arrays = [base, changed(base, 1), changed(base, 2)]
    return [write(tmp_path / name, array) for name, array in zip(("base", "a", "b"), arrays)]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list, to which the names of the compared tensors are added."""
    names: list[str] = []
    compute = TensorComparison.compute

    def noted(self: TensorComparison, *given: Any) -> Any:
        names.append(self._matched.name)
        return compute(self, *given)

    monkeypatch.setattr(TensorComparison, "compute", noted)
    return names


def journal_of(place: Path) -> Path:
    [found] = (place / "state" / journals.FOLDER).iterdir()
    return found


@pytest.mark.parametrize("rows", [1, 20, 39])
def test_by_sigkill(rows: int, models: list[Path], tmp_path: Path, computed: list[str]) -> None:
    base, a, b = models
    calm = compare(tmp_path / "calm", a, b, base=base, threads=1)
    computed.clear()
    killed = command(
        tmp_path, a, b, "--base", base, before=KILLED.format(rows=rows, signal="SIGKILL")
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(journal_of(tmp_path).read_text().splitlines()) == rows
    assert compare(tmp_path, a, b, base=base, threads=1) == calm
    assert len(computed) == 39 - rows
    assert not [*(tmp_path / "state" / journals.FOLDER).iterdir()], "it is done, and forgotten"


@pytest.mark.parametrize(
    ("cut", "kept"), [(-1, 9), (-30, 9), (None, 10)], ids=["a byte", "a part of a row", "nothing"]
)
def test_a_row_that_was_cut_off_is_computed_again(
    cut: int | None, kept: int, models: list[Path], tmp_path: Path, computed: list[str]
) -> None:
    calm = compare(tmp_path / "calm", *models[:2])
    computed.clear()
    command(tmp_path, *models[:2], before=KILLED.format(rows=10, signal="SIGKILL"))
    file = journal_of(tmp_path)
    file.write_bytes(file.read_bytes()[:cut])
    assert compare(tmp_path, *models[:2]) == calm
    assert len(computed) == 39 - kept


def test_what_stands_behind_a_damaged_row_is_computed_again(
    models: list[Path], tmp_path: Path, computed: list[str]
) -> None:
    calm = compare(tmp_path / "calm", *models[:2])
    computed.clear()
    command(tmp_path, *models[:2], before=KILLED.format(rows=10, signal="SIGKILL"))
    file = journal_of(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"elements":', b'"elementz":')
    file.write_bytes(b"".join(lines))
    assert compare(tmp_path, *models[:2]) == calm
    assert len(computed) == 39 - 4


def test_a_model_that_changed_meanwhile_is_read_from_the_start(
    models: list[Path], tmp_path: Path, computed: list[str]
) -> None:
    command(tmp_path, *models[:2], before=KILLED.format(rows=10, signal="SIGKILL"))
    write(models[1], changed(drawn(), 5))
    found = compare(tmp_path, *models[:2])
    assert len(computed) == 39
    assert found == compare(tmp_path / "calm", *models[:2])


def test_a_model_that_changes_while_it_is_read(
    models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = journals.Journal.add

    def changing(self: journals.Journal, name: str, row: Any) -> None:
        add(self, name, row)
        if len(self.rows) == 5:
            write(models[1], changed(drawn(), 5))

    monkeypatch.setattr(journals.Journal, "add", changing)
    with pytest.raises(Resumable, match=r"a/model\.safetensors changed while") as stopped:
        compare(tmp_path, *models[:2])
    assert stopped.value.reason == "source_changed"


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_stops_it_and_the_last_line_goes_on(
    name: str, code: int, models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = command(tmp_path, "base", "a", "--json", before=KILLED.format(rows=7, signal=name))
    assert stopped.returncode == code, stopped.stderr
    told = json.loads(stopped.stdout)
    assert (told["kind"], told["exit_code"]) == ("interrupted", code)
    last = stopped.stderr.splitlines()[-1]
    assert last == told["resume"] and last.startswith("resumerge compare base a ")
    assert 7 <= len(journal_of(tmp_path).read_text().splitlines()) < 39
    again = subprocess.run(
        [sys.executable, "-m", *last.split()], cwd="/", capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    monkeypatch.chdir(tmp_path)
    assert json.loads(again.stdout) == compare(tmp_path / "calm", "base", "a")


def test_a_full_disk_stops_it(models: list[Path], tmp_path: Path) -> None:
    before = """
import errno
from resumerge.storage import Storage
whole = Storage.write
def write(self, fd, data, offset):
    if offset > 3000:
        raise OSError(errno.ENOSPC, "No space left on device")
    whole(self, fd, data, offset)
Storage.write = write
"""
    stopped = command(tmp_path, "base", "a", before=before)
    assert stopped.returncode == 75, stopped.stderr
    assert "The disk is full" in stopped.stderr
    assert stopped.stderr.splitlines()[-1].startswith("resumerge compare base a ")


def test_two_processes_do_not_compare_the_same_models(
    models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[InputError] = []
    add = journals.Journal.add

    def beside(self: journals.Journal, name: str, row: Any) -> None:
        add(self, name, row)
        if not refused:
            with pytest.raises(InputError, match="Another process compares these models") as error:
                compare(tmp_path, *models[:2])
            refused.append(error.value)

    monkeypatch.setattr(journals.Journal, "add", beside)
    assert compare(tmp_path, *models[:2])["pairs"]
    assert refused
