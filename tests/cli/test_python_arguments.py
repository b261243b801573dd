"""The Python twins refuse what the command line refuses: `InputError`, and nothing written."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from merging import Told
from tiny_models import write_family

import resumerge
from resumerge.api.calls import texts_of
from resumerge.engine.checks.memory import most_threads
from resumerge.engine.reporter import ProgressUpdate, Reporter
from resumerge.errors import InputError, Resumable

LINEAR = """merge_method: linear
parameters: {weight: 1}
models: [{model: math}, {model: code}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_family(tmp_path)
    (tmp_path / "recipe.yaml").write_text(LINEAR)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_list_is_a_recipe_of_several_documents(folder: Path) -> None:
    first = {
        "name": "first",
        "merge_method": "linear",
        "parameters": {"weight": 0.5},
        "models": [{"model": "math"}, {"model": "code"}],
    }
    last = {**first, "models": [{"model": "first"}, {"model": "code"}]}
    del last["name"]
    (folder / "stages.yaml").write_text(yaml.safe_dump_all([first, last]))
    resumerge.run("stages.yaml", "from_file")
    resumerge.run([first, last], "from_list")
    of_file, of_list = (folder / out / "model.safetensors" for out in ("from_file", "from_list"))
    assert of_file.read_bytes() == of_list.read_bytes()
    assert resumerge.plan((first, last))["stages"] == resumerge.plan("stages.yaml")["stages"] != []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threads", value) for value in (0, -1, 1.5, "2", True)),
        *(("memory", value) for value in (0, -5, 1e9, "much", "0GB", True)),
        *(("shard_size", value) for value in (0, 5e9, "5XB")),
        *(("seed", value) for value in (1.5, "1", True)),
        ("device", None),
        ("device", "gpu"),
        *(("restart", value) for value in (None, "no")),
        *(("mirror", value) for value in ("", "a\0b", 5)),
        *(("mirror_rate", value) for value in (0, "5XB")),
        ("mirror_wait", -1),
        *((name, "yes") for name in ("mirror_then_delete", "take_over", "bring_back")),
        ("offline", 1),
        ("reporter", print),
        ("progress", "loud"),
        *(("state_dir", value) for value in ("", "a\0b", 5)),
        *(("config", value) for value in (None, 5, "", "a\0b", [], LINEAR.splitlines(), b"x")),
        *(("out", value) for value in (None, 5, "", "a\0b", b"out")),
    ],
)
def test_unfit(folder: Path, name: str, value: Any) -> None:
    before = sorted(folder.rglob("*"))
    arguments = {"config": "recipe.yaml", "out": "out", name: value}
    with pytest.raises(InputError) as refused:
        resumerge.run(arguments.pop("config"), arguments.pop("out"), **arguments)
    assert "found:" in str(refused.value)
    assert sorted(folder.rglob("*")) == before


def test_the_other_twins_too(folder: Path) -> None:
    wrong: Any = 5
    for twin in (resumerge.resume, resumerge.status, resumerge.verify):
        with pytest.raises(InputError):
            twin(wrong)
    with pytest.raises(InputError):
        resumerge.resume(threads=0)
    with pytest.raises(InputError):
        resumerge.plan("recipe.yaml", threads=0)


def test_more_threads_than_help_are_not_started(folder: Path) -> None:
    told = Told()
    resumerge.run("recipe.yaml", "out", threads=100_000, reporter=told)
    assert "100000 threads" in told.notes[0]
    assert resumerge.plan("recipe.yaml", threads=100_000)["threads"] == most_threads()


def test_a_repo_of_the_hub_keeps_its_two_slashes(folder: Path) -> None:
    """The error repeats the malformed address as written: the address is not read as a path."""
    wrong = "hf://org/name/more"
    calls = [
        lambda: resumerge.run("recipe.yaml", "out", mirror=wrong),
        lambda: resumerge.resume(wrong),
        lambda: resumerge.status(wrong),
        lambda: resumerge.verify(wrong),
    ]
    for call in calls:
        with pytest.raises(InputError, match="hf://org/name/more"):
            call()
    assert not (folder / "hf:").exists()


def test_the_home_folder_may_be_written_as_in_a_shell(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "home").mkdir()
    (folder / "recipe.yaml").rename(folder / "home" / "recipe.yaml")
    for model in ("math", "code"):
        (folder / model).rename(folder / "home" / model)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.chdir(folder / "home")
    result = resumerge.run("~/recipe.yaml", "~/out", mirror="~/far", state_dir="~/state")
    assert result.output == folder / "home" / "out"
    assert (folder / "home" / "far" / "config.json").exists()
    assert resumerge.verify("~/out", state_dir="~/state").intact
    assert resumerge.verify("~/far").intact
    assert not (folder / "home" / "~").exists()


def chosen(document: Any) -> dict[str, Any]:
    return {choice["what"]: choice["chosen"] for choice in document["choices"]}


def test_a_plan_with_a_mirror_touches_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    plan = resumerge.plan("recipe.yaml", "out", mirror="far", progress="lines", device="auto")
    assert plan["problems"] == []
    assert chosen(plan)["mirror"] == "far"
    assert chosen(plan)["progress"] == "lines"
    assert chosen(plan)["device"] == ("cuda" if torch.cuda.device_count() else "cpu")
    assert chosen(resumerge.plan("recipe.yaml", mirror="hf://org/name"))["mirror"]
    for mirror, words in (
        ("hf://org/name/more", "not the name of a model repo"),
        ("out/far", "contains the output"),
        ("nowhere/far", "The folder that would contain the mirror does not exist"),
    ):
        (problem,) = resumerge.plan("recipe.yaml", "out", mirror=mirror)["problems"]
        assert words in problem["what"]
    with pytest.raises(InputError):
        resumerge.plan("recipe.yaml", progress="loud")
    assert sorted(folder.rglob("*")) == before


def test_a_drive_that_is_not_mounted_is_no_empty_one(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError, match="mount the drive") as refused:
        resumerge.run("recipe.yaml", "out", mirror="drive/far")
    assert str(folder / "drive" / "far") in str(refused.value)
    assert sorted(folder.rglob("*")) == before
    (folder / "drive").mkdir()
    resumerge.run("recipe.yaml", "out", mirror="drive/far")
    shutil.rmtree(folder / "drive")
    next((folder / "out").glob("*.safetensors")).unlink()
    with pytest.raises(Resumable, match="Mount the drive"):
        resumerge.resume("out")
    (folder / "drive").mkdir()
    resumerge.resume("out", mirror="drive/far")
    assert resumerge.verify("drive/far").intact


def test_a_run_may_be_named_by_a_path(folder: Path) -> None:
    resumerge.run("recipe.yaml", Path("out"))
    assert resumerge.status(Path("out"))["runs"][0]["state"] == "done"
    assert resumerge.verify(Path("out")).intact
    assert resumerge.resume(Path("out")).already_done


def test_a_recipe_may_be_a_mapping(folder: Path) -> None:
    models = [{"model": object()}, {"model": "code"}]
    recipe = {"merge_method": "linear", "parameters": {"weight": 1}}
    with pytest.raises(InputError, match="cannot be written as YAML"):
        resumerge.run({**recipe, "models": models}, "out")
    with pytest.raises(InputError, match="ties needs a base model"):
        resumerge.run({**recipe, "merge_method": "ties", "models": [{"model": "math"}]}, "out")
    assert not (folder / "out").exists() and not (folder / "state").exists()
    whole = {**recipe, "models": [{"model": Path("math")}, {"model": "code"}]}
    assert resumerge.plan(whole)["problems"] == []
    resumerge.run(whole, "out")
    resumerge.run("recipe.yaml", "other")
    assert resumerge.run(whole, "out").already_done
    weights = "model.safetensors"
    assert (folder / "out" / weights).read_bytes() == (folder / "other" / weights).read_bytes()


def test_an_interrupted_recipe_from_python_is_resumed_by_its_name(folder: Path) -> None:
    whole = {
        "merge_method": "linear",
        "parameters": {"weight": 1},
        "models": [{"model": "math"}, {"model": "code"}],
    }
    with pytest.raises(Resumable):
        resumerge.run(whole, "out", reporter=_Full())
    assert not resumerge.resume("out").already_done
    assert resumerge.verify("out").intact


class _Full(Reporter):
    def progressed(self, progressed: ProgressUpdate) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_misspelt_argument_is_told_with_the_nearest(folder: Path) -> None:
    wrong: Any = {"memry": "2GB"}
    with pytest.raises(TypeError, match=r"'memry'\. Did you mean 'memory'"):
        resumerge.run("recipe.yaml", "out", **wrong)


def test_the_text_of_a_recipe_is_no_path(folder: Path) -> None:
    with pytest.raises(InputError, match=r"the text of a recipe[^$]*yaml\.safe_load"):
        resumerge.run(LINEAR, "out")


def test_a_text_is_one_name_and_not_its_letters(folder: Path) -> None:
    words = {"include": "q_proj", "exclude": "layers.0", "save_modules": "lm_head"}
    resumerge.extract_lora("math", "base", "adapter", max_rank=2, **words)
    listed = {name: [word] for name, word in words.items()}
    resumerge.extract_lora("math", "base", "listed", max_rank=2, **listed)
    ours, other = (
        (folder / out / "adapter_model.safetensors").read_bytes() for out in ("adapter", "listed")
    )
    assert ours == other
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert all(name.endswith("q_proj") for name in config["target_modules"])
    assert texts_of("minimize", "directions") == ("minimize",)


@pytest.mark.parametrize(
    "call",
    [
        lambda: resumerge.methods(3),  # type: ignore[arg-type]
        lambda: resumerge.clean(older=30),  # type: ignore[arg-type]
        lambda: resumerge.push("math", 5),  # type: ignore[arg-type]
        lambda: resumerge.try_model("math", 5),  # type: ignore[arg-type]
        lambda: resumerge.init("new.yaml", models=["math"], method=3),  # type: ignore[arg-type]
        lambda: resumerge.init("new.yaml", models=3),  # type: ignore[arg-type]
        lambda: resumerge.init("new.yaml", models=[3]),  # type: ignore[list-item]
        lambda: resumerge.search("recipe.yaml", "out", print),  # type: ignore[arg-type]
        lambda: resumerge.search("recipe.yaml", "out", "x {model}", metrics=5),  # type: ignore[arg-type]
        lambda: resumerge.compare(["math", "code"]),  # type: ignore[arg-type]
        lambda: resumerge.compare("math", base=5),  # type: ignore[arg-type]
        lambda: resumerge.extract_lora(5, "base", "out"),  # type: ignore[arg-type]
        lambda: resumerge.extract_lora("math", "base", "out", include=5),  # type: ignore[arg-type]
        lambda: resumerge.extract_expert(None, 0, "out"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_text(folder: Path, call: Callable[[], Any]) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError, match=r"expected: .*\btext"):
        call()
    assert sorted(folder.rglob("*")) == before


def test_an_unknown_argument_is_told_by_the_functions_name() -> None:
    with pytest.raises(
        TypeError, match=r"^extract_lora\(\) got .*'thread'. Did you mean 'threads'"
    ):
        resumerge.extract_lora("math", "base", "out", thread=1)  # type: ignore[call-arg]


def test_a_result_is_shown_in_a_line_or_two(folder: Path) -> None:
    shown = repr(resumerge.run("recipe.yaml", "out"))
    assert len(shown) < 1000 and "accounts=" not in shown and "changes=" not in shown


def test_notes_of_the_plan_are_in_the_result(folder: Path) -> None:
    recipe = {"merge_method": "passthrough", "models": [{"model": "math"}]}
    result = resumerge.run({**recipe, "parameters": {"density": 0.5}}, "out")
    assert "passthrough has no parameter 'density'; it is ignored (parameters)" in result.notes


def test_numbers_of_numpy_are_numbers(folder: Path) -> None:
    def written(math: Any, code: Any) -> bytes:
        models = [
            {"model": name, "parameters": {"weight": weight}}
            for name, weight in (("math", math), ("code", code))
        ]
        out = folder / f"out{len(list(folder.iterdir()))}"
        resumerge.run({"merge_method": "linear", "models": models}, out)
        return (out / "model.safetensors").read_bytes()

    numpy = written(np.float32(0.5), np.linspace(0, 1, 3))
    assert numpy == written(0.5, [0.0, 0.5, 1.0])


def test_what_yaml_has_no_form_for_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match=r"found: +torch\.bfloat16"):
        resumerge.run({"merge_method": "linear", "dtype": torch.bfloat16}, "out")
    itself: dict[str, Any] = {"merge_method": "linear"}
    itself["models"] = itself
    with pytest.raises(InputError, match="contains itself"):
        resumerge.run(itself, "out")


def test_the_progress_goes_to_the_reporter_that_the_documentation_shows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    example = text.partition("## Progress in Python")[2].partition("## Resume")[0]
    lines = [line for line in example.splitlines() if line.startswith("    ")]
    code = "\n".join(line.removeprefix("    ") for line in lines)
    exec(code.replace("merge.yaml", "recipe.yaml"), {"resumerge": resumerge})
    assert "100%" in capsys.readouterr().out
