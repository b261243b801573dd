"""Promise: an option is one declaration; a command is one file and its name in one list."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from commands import DISK_FULL, each, python, resumerge, separated

import resumerge as package
from resumerge.cli.main import COMMANDS
from resumerge.errors import InputError
from resumerge.options import declared
from resumerge.options.call_options import (
    CompareOptions,
    ExplainOptions,
    ExtractLoraOptions,
    ExtractOptions,
    ReproduceOptions,
    ResumeOptions,
    RunOptions,
    SearchOptions,
    VerifyOptions,
)

DUMMY_OPTION = """
    dummy: int | None = declare(
        Number(), "A dummy.", commands=_WITH_MIRROR, kept=Kept.INHERITED, needs_mirror=False,
    )
    state_dir: """

DUMMY_COMMAND = '''
import click
from resumerge.cli.parsing.command import Command

@click.command("greet", cls=Command)
def command() -> None:
    """Greet."""
    print("hello")
'''

FROM_PYTHON = """
import inspect, resumerge
from resumerge.options import Options
print(inspect.signature(resumerge.run).parameters["dummy"])
print("dummy: A dummy." in resumerge.run.__doc__)
began = {"dummy": 7}
print(Options().inherit(began, None).dummy, Options(dummy=8).inherit(began, None).dummy)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Make a folder with a copy of the compiled package, which a test can change."""
    shutil.copytree(Path(package.__file__).parent, tmp_path / "resumerge")
    return tmp_path


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))


def test_an_option_is_declared_and_nothing_else(copy: Path, place: Path, tmp_path: Path) -> None:
    change(copy / "resumerge/options/fields.py", "\n    state_dir: ", DUMMY_OPTION)

    def call(*words: object, before: str = "") -> Any:
        return resumerge(*words, cwd=place, before=before, PYTHONPATH=str(copy))

    helps = each(["run --help", "resume --help", "plan --help", "verify --help"])
    said = python(helps, cwd=place, PYTHONPATH=str(copy)).stdout
    assert ["--dummy N" in text for text, _ in separated(said)] == [True, True, True, False]
    words = ["run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state", "--dummy"]
    assert call(*words, "many").returncode == 2
    stopped = call(*words, 7, before=DISK_FULL)
    assert stopped.returncode == 75, stopped.stderr
    assert "--dummy" not in stopped.stderr.splitlines()[-1], "the ledger has it"
    [ledger] = (tmp_path / "state").glob("*/ledger.db")
    [(options,)] = sqlite3.connect(ledger).execute("SELECT options FROM run")
    assert json.loads(options)["dummy"] == 7
    told = call("methods", "--json", before=FROM_PYTHON)
    assert told.stdout.splitlines()[:3] == ["dummy: int | None = None", "True", "7 8"]


def test_a_command_is_a_file_and_its_name(copy: Path, place: Path) -> None:
    (copy / "resumerge/cli/greet.py").write_text(DUMMY_COMMAND)
    last = '    "cache": "Check and repair cached sources.",\n'
    change(copy / "resumerge/cli/main.py", last, f'{last}    "greet": "Greet.",\n')
    done = resumerge("greet", cwd=place, PYTHONPATH=str(copy))
    assert done.stdout == "hello\n", done.stderr
    assert re.search("greet +Greet[.]", resumerge("--help", cwd=place, PYTHONPATH=str(copy)).stdout)
    assert "'greet'" in resumerge("geet", cwd=place, PYTHONPATH=str(copy)).stderr


TYPES: dict[str, Any] = {
    "run": RunOptions,
    "resume": ResumeOptions,
    "plan": RunOptions,
    "extract-expert": ExtractOptions,
    "extract-lora": ExtractLoraOptions,
    "compare": CompareOptions,
    "explain": ExplainOptions,
    "search": SearchOptions,
    "verify": VerifyOptions,
    "reproduce": ReproduceOptions,
}
"""The options of each command that has more than the state folder, for type checkers."""


def test_each_command_with_options_has_types() -> None:
    assert {name for name in COMMANDS if len(declared(name)) > 1} == TYPES.keys()


@pytest.mark.parametrize("command", TYPES)
def test_type_checkers_see_what_is_declared(command: str) -> None:
    expected = {
        option.name: option.type.accepts | None if option.default is None else option.type.accepts
        for option in declared(command)
    }
    assert get_type_hints(TYPES[command]) == expected
    shown = inspect.signature(getattr(package, command.replace("-", "_"))).parameters
    assert {name: shown[name].annotation for name in expected} == expected
    assert {name: shown[name].default for name in expected} == {
        option.name: option.default for option in declared(command)
    }


def test_an_option_that_is_not_there_is_a_type_error() -> None:
    wrong: Any = {"shard_size": 5}
    with pytest.raises(TypeError, match=r"resume\(\) got an unexpected keyword.*'shard_size'"):
        package.resume(**wrong)


def test_every_wrong_option_is_listed() -> None:
    wrong: Any = {"memory": "much", "threads": 0, "seed": 1.5, "state_dir": 5}
    with pytest.raises(InputError) as refused:
        package.run("recipe.yaml", "out", **wrong)
    found = [problem.found for problem in refused.value.problems]
    assert sorted(found) == ["'much'", "0", "1.5", "5"]
