"""Promise: an address is refused where a path on this machine belongs, and nothing is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import resumerge
from resumerge.cli.main import _exit_code as exit_code_of
from resumerge.errors import InputError
from resumerge.options import Options

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"

ADDRESS, REPO = "s3://bucket/x", "hf://org/x"

COMMANDS = {
    "the output": ["run", "recipe.yaml", REPO],
    "the output that is planned": ["plan", "recipe.yaml", REPO],
    "the output of one expert": ["extract-expert", "mixture", "0", REPO],
    "a file as the output": ["run", "recipe.yaml", "hf://org/x.safetensors"],
    "the recipe": ["run", "https://example.org/recipe.yaml", "out"],
    "the recipe to write": ["init", "gs://bucket/recipe.yaml"],
    "the state folder": ["run", "recipe.yaml", "out", "--state-dir", ADDRESS],
    "the state folder that is read": ["status", "--state-dir", ADDRESS],
    "the folder of the stages": ["run", "recipe.yaml", "out", "--intermediate-dir", ADDRESS],
    "the output that a mirror's run gets": ["resume", "--output", "S3://bucket/x"],
    "the model to push": ["push", ADDRESS, "org/x"],
    "the model to try": ["try", ADDRESS, "hello"],
    "the text to predict": ["try", "out", "hello", "--text", ADDRESS],
    "the page": ["status", "--html", ADDRESS],
    "the working folder": ["run", "recipe.yaml", "out", "--chdir", ADDRESS],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RESUMERGE_STATE_DIR", raising=False)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_refuses_it(what: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = next(word for word in COMMANDS[what] if "://" in word)
    assert exit_code_of(COMMANDS[what]) == 2
    says = capsys.readouterr().err
    assert "has to be on this machine" in says
    assert f"where:    {address}" in says
    assert ("--mirror" in says) == ("output" in what)
    assert [path.name for path in here.iterdir()] == ["recipe.yaml"]


def test_it_is_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["run", "recipe.yaml", REPO, "--json"]) == 2
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert f"--mirror {REPO} copies the model" in problem["fix"]
    assert exit_code_of(["run", "recipe.yaml", "file:///tmp/x"]) == 2
    assert "write the path alone: /tmp/x" in capsys.readouterr().err


def test_the_environment_names_a_path_too(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RESUMERGE_STATE_DIR", ADDRESS)
    assert exit_code_of(["status"]) == 2
    assert "The state folder has to be on this machine" in capsys.readouterr().err


@pytest.mark.parametrize("out", [REPO, Path(REPO)], ids=["as text", "as a path"])
def test_python_refuses_it(out: Any, here: Path) -> None:
    with pytest.raises(InputError, match="output has to be on this machine"):
        resumerge.run(here / "recipe.yaml", out)
    with pytest.raises(InputError, match="state folder has to be on this machine"):
        Options.read("run", {"state_dir": out})


def test_a_folder_with_such_a_name_can_be_named(here: Path) -> None:
    assert Options.read("run", {"state_dir": "./s3:/state"}).state_dir == Path("s3:/state")
    assert exit_code_of(["init", "./s3:", "--method", "linear", "--models", "a,b"]) == 0
    assert (here / "s3:").is_file()
