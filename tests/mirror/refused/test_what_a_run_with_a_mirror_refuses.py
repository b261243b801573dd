"""Promise: a run keeps its mirror and its output; neither comes to lie in the other or in a source,
and what is found in one mirror says nothing of another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from finished_runs import Bed
from machines import files_of
from made_up_mirrors import RECIPE, put, resume
from merging import merge, working_in

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Resumable
from resumerge.mirror.names import SnapshotName
from resumerge.options import Options


def test_who_resumes_from_one_mirror_names_no_other(bed: Bed, tmp_path: Path) -> None:
    """The same address with a slash at its end names no other mirror."""
    with pytest.raises(InputError, match="keeps that mirror"):
        bed.resume(bed.mirror, mirror=str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    assert bed.resume(bed.mirror, mirror=f"{bed.mirror}/").already_done


def test_a_run_stays_in_its_output(bed: Bed, tmp_path: Path) -> None:
    """A path through a link names no other output."""
    with pytest.raises(InputError, match="another output on this machine"):
        bed.resume(bed.out, output=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    (tmp_path / "link").symlink_to(bed.out)
    assert bed.resume(bed.out, output=tmp_path / "link").already_done


@pytest.mark.parametrize("where", ["", "here", "a/b"])
def test_a_model_does_not_come_back_into_its_mirror(bed: Bed, where: str) -> None:
    before = files_of(bed.mirror)
    bed.forget()
    with pytest.raises(InputError):
        bed.resume(bed.mirror, bring_back=True, output=bed.mirror / where)
    assert files_of(bed.mirror) == before
    assert bed.resume(bed.mirror, bring_back=True, output=bed.out).already_done


def test_a_run_is_not_brought_into_its_mirror_nor_over_files_of_others(
    made: Path, there: Path
) -> None:
    put(made, there)
    before = files_of(there)
    with pytest.raises(InputError, match="contains the output"):
        resume(made, there, output=there / "out")
    mine = there.parent / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"contains other files(.|\n)*notes\.txt"):
        resume(made, there, output=mine)
    assert files_of(there) == before
    assert files_of(mine) == {"notes.txt": b"mine"}
    resume(made, there, output=there.parent / "out")


def test_a_mirror_that_a_run_gets_later_lies_in_no_source(bed: Bed, tmp_path: Path) -> None:
    out = merge(bed.work, RECIPE, tmp_path / "alone")
    (out / "model.safetensors").unlink()
    inside = str(bed.work / "math" / "mirror")
    with (
        working_in(bed.work),
        pytest.raises(InputError, match="The mirror is inside a source model"),
    ):
        Session(Options(state_dir=tmp_path / "alone.state", mirror=inside)).resume(str(out))
    assert not (bed.work / "math" / "mirror").exists()


@pytest.mark.parametrize("other", [RECIPE.replace("math", "code"), RECIPE + "dtype: float16\n"])
def test_a_finished_model_of_another_recipe_is_not_what_was_asked_for(bed: Bed, other: str) -> None:
    before = files_of(bed.mirror)
    bed.forget()
    (bed.work / "recipe.yaml").write_text(other)
    with pytest.raises(InputError, match="The mirror holds another run"):
        bed.run()
    assert files_of(bed.mirror) == before
    (bed.work / "recipe.yaml").write_text(f"# the same\n{RECIPE}")
    assert bed.run().already_done


@pytest.mark.parametrize("named", [True, False])
def test_another_recipe_does_not_take_the_place_of_what_the_mirror_alone_has(
    bed: Bed, named: bool
) -> None:
    """A run without any file would make way for the new recipe if it had no mirror."""
    before = files_of(bed.mirror)
    shutil.rmtree(bed.out)
    (bed.work / "recipe.yaml").write_text(RECIPE.replace("math", "code"))
    with pytest.raises(InputError, match="The recipe has changed since the run was created"):
        bed.run(mirror=str(bed.mirror) if named else None)
    assert files_of(bed.mirror) == before


def test_damage_in_a_mirror_that_the_run_had_before_is_none_of_its_own(
    bed: Bed, tmp_path: Path
) -> None:
    now = tmp_path / "now"
    assert not bed.run(mirror=str(now)).already_done
    min(bed.mirror.glob("*.safetensors")).write_bytes(b"damaged")
    found = resumerge.verify(bed.mirror, state_dir=bed.state)
    assert found.damaged and not found.marked
    assert "mirror_damaged" not in bed.events()
    assert bed.resume(bed.out).already_done
    min(now.glob("*.safetensors")).write_bytes(b"damaged")
    assert resumerge.verify(now, state_dir=bed.state).marked
    assert not bed.resume(bed.out).already_done
    assert resumerge.verify(now, state_dir=bed.state).intact


@pytest.mark.parametrize("known", [True, False])
def test_what_is_left_of_the_books_of_a_finished_run_goes(bed: Bed, known: bool) -> None:
    """The machine that finished the run was killed before it removed its metadata."""
    books = bed.mirror / ".resumerge"
    before = {path.name for path in books.iterdir()}
    (bed.mirror / SnapshotName(1, 1, "0" * 32).name).write_bytes(b"left")
    if not known:
        bed.forget()
    assert bed.resume(bed.mirror).already_done
    assert {path.name for path in books.iterdir()} == before


def test_a_card_may_be_edited_and_not_be_missing(bed: Bed) -> None:
    (bed.mirror / "README.md").unlink()
    found = resumerge.verify(bed.mirror, state_dir=bed.state)
    assert found.damaged == {"README.md": "it is missing"}
    bed.resume(bed.out)
    assert resumerge.verify(bed.mirror, state_dir=bed.state).intact


def test_what_the_mirror_alone_has_needs_space_here_only_if_it_is_to_come(
    made: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(made, there)
    monkeypatch.setattr("resumerge.engine.checks.disk.free_bytes", lambda path: 0)
    with pytest.raises(Resumable, match="The disk is too small") as stopped:
        resume(made, there, bring_back=True)
    assert stopped.value.reason == "disk_full"
    assert not list(there.parent.glob("work/merged/*"))
    resume(made, there)
    assert (there / "config.json").exists()


def test_a_shard_that_nobody_has_needs_its_space(
    made: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(made, there)
    (lost, *_) = there.glob("*.safetensors")
    size = lost.stat().st_size
    lost.unlink()
    monkeypatch.setattr("resumerge.engine.checks.disk.free_bytes", lambda path: free)
    free = size - 1
    with pytest.raises(Resumable, match="The disk is too small"):
        resume(made, there)
    free = size
    resume(made, there)
    assert lost.stat().st_size == size


def test_a_run_that_came_from_its_mirror_gets_no_second_output(
    made: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(made, there)
    with monkeypatch.context() as patch, pytest.raises(Resumable):
        patch.setattr("resumerge.engine.checks.disk.free_bytes", lambda path: 0)
        resume(made, there, bring_back=True)
    work = there.parent / "work"
    (work / "recipe.yaml").write_text(RECIPE)
    session = Session(Options(state_dir=there.parent / "state", mirror=str(there)))
    with working_in(work), pytest.raises(InputError, match="another output") as refused:
        session.run(work / "recipe.yaml", work / "other")
    assert str(work / "merged") in str(refused.value)
    assert not (work / "other").exists()
