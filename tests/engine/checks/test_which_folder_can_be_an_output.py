"""Promise: an output is new or empty, and outside of every source; replaced files do not count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_plans import llama, plan
from small_disks import also_at

from resumerge.engine.checks import disk
from resumerge.engine.checks.disk import check_downloads
from resumerge.engine.checks.new_run import new_run_problems
from resumerge.engine.checks.paths import (
    check_form,
    check_output,
    check_output_path,
    check_outside,
)
from resumerge.engine.context import RunContext
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Problem
from resumerge.host.machine import FREE_BESIDE_DOWNLOADS
from resumerge.ledger.run_store import RunStore
from resumerge.local_path import is_within
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.planning import estimate
from resumerge.sources.types import SourceFile
from resumerge.storage import Storage

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"


def found(out: Path, *ours: str) -> str:
    """Return the names of the files that are in the way of an output; empty if none are."""
    return "".join(problem.found for problem in check_output(OutputPath(out), ours))


def test_folders_without_files_are_empty(tmp_path: Path) -> None:
    assert found(tmp_path / "new" / "out") == ""
    (tmp_path / "out" / "1_Pooling").mkdir(parents=True)
    assert found(tmp_path / "out") == ""


def test_a_file_or_a_link_at_any_depth_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "a" / "folder").symlink_to(tmp_path)
    assert found(tmp_path / "out") == "a/folder"
    (tmp_path / "out" / "nowhere").symlink_to("gone")
    (tmp_path / "out" / "a" / "b").write_text("mine")
    assert found(tmp_path / "out") == "a/b, a/folder, nowhere"


def test_what_is_replaced_is_in_nobodys_way_and_all_else_is(tmp_path: Path) -> None:
    """A file of the same name in another folder is another file."""
    (tmp_path / "a").mkdir()
    for name in ("config.json", "a/config.json"):
        (tmp_path / name).write_text("{}")
    assert found(tmp_path, "config.json", "a/config.json") == ""
    assert found(tmp_path, "config.json") == "a/config.json"
    assert found(tmp_path, "config.json.partial", "a/config.json") == "config.json"


def test_what_an_unfinished_run_left_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.partial").write_bytes(b"")
    [problem] = check_output(OutputPath(tmp_path))
    assert "--state-dir" in problem.fix


@pytest.mark.parametrize("suffix", [".safetensors", ".bin", ".pt", ".pth", ".ckpt"])
def test_a_new_folder_is_not_named_like_a_weight_file(tmp_path: Path, suffix: str) -> None:
    """A name with this suffix suggests a file, but the output is a folder, as its model is."""
    out = OutputPath(tmp_path / f"merged-1.5{suffix}")
    [problem] = check_form(out, "math", single=False)
    assert problem.found == out.path.name
    assert problem.expected == "the name of a folder, because math is one"
    assert problem.fix == "name the folder merged-1.5"
    assert check_form(OutputPath(tmp_path / "merged-1.5"), "math", single=False) == []
    assert check_form(OutputPath(tmp_path / "merged-1.5"), "math.ckpt", single=True) == []


def test_one_file_is_written_as_safetensors(tmp_path: Path) -> None:
    assert check_form(OutputPath(tmp_path / "x.safetensors"), "a.ckpt", single=True) == []
    [problem] = check_form(OutputPath(tmp_path / "x.ckpt"), "a.ckpt", single=True)
    assert "ends in .safetensors" in problem.expected
    assert problem.fix == "name the file x.safetensors, or the folder x"


def test_one_file_is_new_and_what_lies_beside_it_does_not_matter(tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    (tmp_path / "other.safetensors").write_bytes(b"")
    (tmp_path / "other.safetensors.partial").write_bytes(b"")
    assert found(out) == found(tmp_path / "new" / out.name) == ""
    partial = tmp_path / "mine.safetensors.partial"
    partial.write_bytes(b"")
    [problem] = check_output(OutputPath(out))
    assert problem.found == partial.name and "--state-dir" in problem.fix
    assert found(out, partial.name) == ""
    out.symlink_to("gone")
    assert found(out, partial.name) == out.name
    assert found(out, out.name) == partial.name
    assert found(out, out.name, partial.name) == ""
    out.unlink()
    out.mkdir()
    assert found(out, partial.name) == f"a folder named {out.name}"


@pytest.mark.parametrize(
    "name", [".hidden", "two\nlines", "back\\slash", "o" * 200, "\udcff"], ids=ascii
)
def test_one_file_has_a_name_that_it_can_have_in_a_mirror(tmp_path: Path, name: str) -> None:
    assert check_output_path(OutputPath(tmp_path / "a model, ähnlich (1).safetensors")) == []
    [problem] = check_output_path(OutputPath(tmp_path / f"{name}.safetensors"))
    assert problem.what in ("The output cannot have this name", "The output cannot be used")
    str(problem).encode()


def test_an_output_is_outside_of_a_source_wherever_links_lead(tmp_path: Path) -> None:
    """A folder whose name begins with a source's name is not inside that source."""
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to("model")
    source, link = tmp_path / "model", tmp_path / "link"
    inside = [source, source / "x" / "y", link, link / "x", tmp_path / "new" / ".." / "model" / "x"]
    for folder in (source, link):
        assert [len(check_outside(out, [folder])) for out in inside] == [1] * len(inside)
        for out in (tmp_path, tmp_path / "model2", tmp_path / "model.out"):
            assert check_outside(out, [folder]) == []
    assert len(check_outside(source, [tmp_path / "other", source])) == 1


@pytest.mark.parametrize("taken", [0, 4])
def test_what_is_replaced_gives_its_space_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """A replaced file frees only its allocated blocks: a file may have holes."""
    made = plan(RECIPE, llama("a"), llama("b"))
    out, size = tmp_path / "out", 1 << 20
    out.mkdir()
    with (out / "model.safetensors").open("wb") as file:
        file.write(bytes(taken * 4096))
        file.truncate(size)
    freed = (out / "model.safetensors").stat().st_blocks * 512
    assert freed < size
    options = Options(state_dir=tmp_path / "state")
    runs = RunStore(options.state_dir)
    context = RunContext(options, Reporter(), Storage(), StopRequest(), runs)
    free = estimate(made).disk - freed
    monkeypatch.setattr(disk, "free_bytes", lambda path: free)
    assert (
        new_run_problems(context, made, estimate(made), OutputPath(out), ["model.safetensors"])
        == []
    )
    free -= 1
    [problem] = new_run_problems(
        context, made, estimate(made), OutputPath(out), ["model.safetensors"]
    )
    assert "The disk is too small" in problem.what


def test_downloads_and_an_output_on_another_disk_need_their_own_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    made = plan(RECIPE, llama("a"), llama("b"))
    file = SourceFile("m.safetensors", 1000, {"etag": "e" * 64}, present=False)
    there = replace(made.sources[1], kind="hub", revision="c" * 40, files={file.name: file})
    made = replace(made, sources=(made.sources[0], there))

    def problems(out: Path, free: int) -> list[Problem]:
        monkeypatch.setattr(disk, "free_bytes", lambda path: free)
        return check_downloads(made, estimate(made), out, 300, offline=False, evict=False)

    assert problems(tmp_path / "out", 1300) == []
    assert problems(tmp_path / "out", 1299)
    elsewhere = Path("/proc/out")
    assert problems(elsewhere, 1000 + FREE_BESIDE_DOWNLOADS) == []
    assert problems(elsewhere, 999 + FREE_BESIDE_DOWNLOADS), "the download would stop the run"


def test_a_folder_is_known_by_whatever_name(tmp_path: Path) -> None:
    """A mount gives a folder two names, as a disk that ignores the case of names does."""
    model, same = tmp_path / "model", tmp_path / "MODEL"
    (model / "below").mkdir(parents=True)
    same.mkdir()
    with also_at(model, same):
        for out in (same, same / "out", same / "below", same / "below/out/model.gguf"):
            assert len(check_outside(out, [model])) == 1, out
        for out in (tmp_path / "out", tmp_path / "MODELS/out", tmp_path):
            assert check_outside(out, [model]) == []
        assert is_within(same, model) and not is_within(same, model / "below")
    assert check_outside(same / "out", [model]) == []
