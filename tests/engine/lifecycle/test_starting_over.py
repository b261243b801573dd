"""Promise: `run --restart` forgets the options of the run; `resume --restart` keeps them."""

from __future__ import annotations

import errno
import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from merging import Told, working_in
from tiny_models import write_family

from resumerge.cli.run import command
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Resumable
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options, declared

RECIPE = """merge_method: linear
parameters: {weight: 1}
models: [{model: math}, {model: code}]
"""
GIVEN: dict[str, Any] = {
    "memory": 10**9,
    "threads": 1,
    "materialize": "never",
    "evict": True,
    "trust_sources": True,
    "mirror_wait": 5.0,
    "seed": 7,
    "shard_size": 8000,
}
ANEW = {**dict.fromkeys(GIVEN), "trust_sources": False, "seed": 0, "shard_size": 5 * 10**9}


class Work:
    """A finished run with a mirror and every option."""

    def __init__(self, folder: Path) -> None:
        write_family(folder)
        self.folder, self.mirror = folder, folder / "mirror"
        self.config, self.out = folder / "recipe.yaml", folder / "out"
        self.config.write_text(RECIPE)
        self.run(mirror=str(self.mirror), **GIVEN)

    def session(self, **options: Any) -> Session:
        self.told = Told()
        return Session(Options(state_dir=self.folder / "state", **options), self.told)

    def run(self, **options: Any) -> None:
        with working_in(self.folder):
            self.session(**options).run(self.config, self.out)

    def resume(self, **options: Any) -> None:
        with working_in(self.folder):
            self.session(**options).resume(str(self.out))

    def record(self) -> tuple[str | None, dict[str, Any]]:
        """Return the mirror and the options of the only run."""
        [run] = RunStore(self.folder / "state").runs()
        with closing(Ledger(run / LEDGER_FILE, read_only=True)) as ledger:
            row = ledger.run()
        kept = json.loads(row["options"])
        return row["mirror"], {name: kept[name] for name in GIVEN}

    def mirrored(self) -> dict[str, bytes]:
        files = (file for file in self.mirror.rglob("*") if file.is_file())
        return {str(file.relative_to(self.mirror)): file.read_bytes() for file in files}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_run_names_everything_anew(work: Work) -> None:
    assert work.record() == (str(work.mirror), GIVEN)
    before = work.mirrored()
    work.run(restart=True)
    assert work.record() == (None, ANEW)
    assert work.mirrored() == before
    [note] = (note for note in work.told.notes if "mirror" in note)
    assert f"had a mirror, {work.mirror}, which stays as it is" in note


def test_what_run_names_is_taken(work: Work) -> None:
    work.run(restart=True, mirror=str(work.mirror), threads=2)
    assert work.record() == (str(work.mirror), {**ANEW, "threads": 2})
    assert not [note for note in work.told.notes if "stays" in note]


def test_an_option_about_a_mirror_needs_one_again(work: Work) -> None:
    before = work.record(), work.mirrored()
    with pytest.raises(InputError, match="A mirror is needed"):
        work.run(restart=True, mirror_wait=3.0)
    assert (work.record(), work.mirrored()) == before


def test_resume_keeps_what_was_given(work: Work) -> None:
    work.resume(restart=True)
    assert work.record() == (str(work.mirror), GIVEN)


def test_another_recipe_where_nothing_is_left_is_a_new_run(work: Work) -> None:
    work.run(restart=True, **{**GIVEN, "mirror_wait": None})  # without the mirror
    for file in work.out.iterdir():
        file.unlink()
    work.config.write_text(RECIPE.replace("weight: 1", "weight: 2"))
    work.run()
    assert work.record() == (None, ANEW)


def test_the_command_that_a_message_names_keeps_them(work: Work) -> None:
    work.config.write_text(RECIPE.replace("weight: 1", "weight: 2"))
    with pytest.raises(InputError) as refused:
        work.run(no_recheck=True)
    [problem] = refused.value.problems
    line = (problem.fix or "").rsplit("`", 2)[1]
    words = shlex.split(line)
    assert words[:4] == ["resumerge", "run", str(work.config), str(work.out)]
    given = command.make_context("run", words[2:]).params
    names = {option.name for option in declared("run")}
    options = Options(**{name: value for name, value in given.items() if name in names})
    assert options == Options(
        state_dir=work.folder / "state",
        mirror=str(work.mirror),
        restart=True,
        no_recheck=True,
        **GIVEN,
    )


@pytest.mark.parametrize("other", [{"seed": 9}, {"shard_size": 9000}])
def test_another_option_where_nothing_is_left_is_a_new_run(
    work: Work, other: dict[str, Any]
) -> None:
    work.run(restart=True, seed=7)
    with pytest.raises(InputError, match="An option has changed"):
        work.run(**other)
    for file in work.out.iterdir():
        file.unlink()
    work.run(**other)
    assert work.record() == (None, {**ANEW, **other})


@pytest.mark.parametrize("by", ["run", "resume"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_an_edited_recipe_of_a_run_that_committed_nothing_is_taken(
    work: Work, by: str, mirrored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = {"mirror": str(work.folder / "other")} if mirrored else {}
    work.out = work.folder / "new"

    def full(*words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(Resumable):
        patched.setattr(Told, "began", full)
        work.run(**mirror)
    work.config.write_text(RECIPE.replace("weight: 1", "weight: 2"))
    if by == "run":
        work.run(**mirror)
    else:
        work.resume()
    card = (work.out / "mergekit_config.yml").read_text() if work.out.is_dir() else ""
    assert "weight: 2" in card


def test_a_finished_run_is_only_started_over_by_its_name(work: Work) -> None:
    before = work.record(), (work.out / "model.safetensors.index.json").stat().st_ino
    with pytest.raises(InputError, match="The newest run is done") as refused:
        work.session(restart=True).resume(None)
    [problem] = refused.value.problems
    assert f"`resumerge resume {problem.where} --restart`" in problem.fix
    assert before == (work.record(), (work.out / "model.safetensors.index.json").stat().st_ino)
