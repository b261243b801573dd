"""A command loads no slow module that it does not need; the README names every command."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest
from commands import each, python, resumerge, separated

from resumerge.cli.main import COMMANDS as SUMMARIES
from resumerge.options import declared

cold = pytest.mark.cold_start

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
COMMANDS = [
    *("init", "plan", "explain", "run", "resume", "status", "verify", "reproduce"),
    *("search", "compare", "try", "push", "extract-expert", "extract-lora", "clean"),
    *("ui", "methods", "demo", "cache"),
]

HEAVY = {
    *("torch", "transformers", "safetensors", "pandas", "huggingface_hub", "requests", "httpx"),
    *("pydantic", "typer", "asyncio", "multiprocessing", "unittest"),
}
"""What takes long to import, or much memory. torch takes a second and 200 MB."""

REPORT_HEAVY = f"""
import atexit, sys
def report():
    heavy = {HEAVY} & set(sys.modules)
    print("HEAVY", *heavy, file=sys.stderr)
atexit.register(report)
"""


@pytest.fixture(scope="module")
def copied(place: Path) -> Path:
    """Write a recipe that computes nothing, and return its path."""
    recipe = place / "copied.yaml"
    recipe.write_text("merge_method: passthrough\nmodels: [{model: math}]\n")
    return recipe


def heavy_in(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the heavy libraries that a process had loaded when it ended."""
    assert done.returncode == 0, done.stderr
    return set(done.stderr.strip().splitlines()[-1].split()[1:])


def heavy(place: Path, *words: str) -> set[str]:
    """Return the heavy libraries that a command loaded."""
    return heavy_in(resumerge(*words, cwd=place, before=REPORT_HEAVY))


LIGHT = [
    "--help",
    "--version",
    "status",
    "status done --json",
    "verify done",
    "explain copied.yaml",
    "plan copied.yaml",
    "plan copied.yaml --json",
    "plan linear.yaml",
    "plan linear.yaml --json",
    "methods ties",
]


@cold
def test_none_of_these_loads_anything_heavy(place: Path, copied: Path) -> None:
    done = python(REPORT_HEAVY + each(LIGHT), cwd=place)
    assert [code for _, code in separated(done.stdout)] == [0] * len(LIGHT), done.stderr
    assert heavy_in(done) == set(), [words for words in LIGHT if heavy(place, *words.split())]


@cold
def test_no_help_loads_anything_heavy(place: Path) -> None:
    done = python(REPORT_HEAVY + each([f"{command} --help" for command in COMMANDS]), cwd=place)
    for command, (said, code) in zip(COMMANDS, separated(done.stdout), strict=True):
        assert f"Usage: -c {command} " in said and code == 0
    assert heavy_in(done) == set()


@cold
def test_importing_the_package_and_its_twins_loads_nothing_heavy(place: Path) -> None:
    program = f"{REPORT_HEAVY}import resumerge; resumerge.status('done')"
    assert heavy_in(python(program, cwd=place)) == set()


@cold
def test_a_merge_that_copies_loads_nothing_heavy(place: Path, copied: Path, tmp_path: Path) -> None:
    words = ["run", copied.name, str(tmp_path / "out"), "--state-dir", str(tmp_path / "state")]
    assert heavy(place, *words, "--no-supervise") == set()


@cold
def test_a_merge_by_kernels_loads_nothing_heavy(place: Path, tmp_path: Path) -> None:
    words = ["run", "linear.yaml", str(tmp_path / "out"), "--state-dir", str(tmp_path / "state")]
    found = heavy(place, *words, "--no-supervise")
    assert not found & {"torch", "transformers", "huggingface_hub", "pydantic"}


@cold
def test_the_supervisor_of_a_merge_loads_nothing_heavy(place: Path, tmp_path: Path) -> None:
    words = ["run", "linear.yaml", str(tmp_path / "out"), "--state-dir", str(tmp_path / "state")]
    assert heavy(place, *words) == set()


def test_the_program_has_the_commands_that_the_contract_names(place: Path) -> None:
    listed = resumerge("--help", cwd=place).stdout.split("Commands:")[1]
    assert re.findall(r"^  ([\w-]+)", listed, re.MULTILINE) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_says_of_a_command_what_its_help_begins_with(command: str) -> None:
    module = importlib.import_module(f"resumerge.cli.{command.replace('-', '_')}")
    assert SUMMARIES[command] == module.command.get_short_help_str(1000)


@cold
def test_the_list_of_commands_imports_none(place: Path) -> None:
    report = """
import atexit, sys
atexit.register(lambda: print([n for n in sys.modules if n.startswith("resumerge.api")
                               or n in ("numpy", "jinja2", "resumerge.cli.run")], file=sys.stderr))
"""
    done = resumerge("--help", cwd=place, before=report)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_and_documentation_speak_of_the_command(command: str) -> None:
    for text in (README, (DOCS / "commands.md").read_text()):
        assert f"resumerge {command}" in text


def test_a_page_of_the_documentation_has_each_option() -> None:
    """Options of mirrors are in docs/mirrors.md, all others in docs/commands.md."""
    text = "".join((DOCS / page).read_text() for page in ("commands.md", "mirrors.md"))
    missing = [o.flag for o in declared() if not re.search(rf"`[^`\n]*{o.flag}\b", text)]
    assert missing == []


OPTIONS = {
    "run": "--state-dir --memory --threads --device --shard-size --seed --offline --restart "
    "--no-supervise --stall-timeout --json",
    "resume": "--state-dir --memory --threads --device --offline --restart --json",
    "status": "--state-dir --json --watch --html",
    "plan": "--memory --threads --shard-size --offline --json",
    "verify": "--state-dir --json",
    "explain": "--state-dir --offline --html --json",
    "compare": "--state-dir --base --threads --offline --json",
    "search": "--evaluate --trials --sampler --timeout --keep-best --seed --memory --json",
    "try": "--state-dir --text --tokens --json",
    "cache check": "--state-dir --offline --json",
    "cache repair": "--state-dir --json",
    "methods": "--json",
}


def test_the_options_of_the_contract_are_there(place: Path) -> None:
    done = python(each([f"{command} --help" for command in OPTIONS]), cwd=place)
    for (command, options), (said, _) in zip(OPTIONS.items(), separated(done.stdout), strict=True):
        assert set(options.split()) <= set(re.findall(r"--[\w-]+", said)), command


def test_the_state_folder_may_come_from_the_environment(place: Path, tmp_path: Path) -> None:
    done = resumerge(
        "run", "linear.yaml", tmp_path / "out", cwd=place, RESUMERGE_STATE_DIR=str(tmp_path / "s")
    )
    assert done.returncode == 0
    assert len(list((tmp_path / "s").glob("*/ledger.db"))) == 1


def test_a_command_line_copied_from_a_tutorial_of_mergekit_works(
    place: Path, tmp_path: Path
) -> None:
    options = "--copy-tokenizer --allow-crimes --out-shard-size 1B --lazy-unpickle --random-seed 3"
    words = ["run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state"]
    done = resumerge(*words, *options.split(), cwd=place)
    assert done.returncode == 0, done.stderr
    assert "--lazy-unpickle" in done.stderr


def test_plan_takes_the_words_of_run() -> None:
    def options(command: str) -> set[str]:
        taken = importlib.import_module(f"resumerge.cli.{command}").command.params
        return {word for option in taken for word in option.opts if word.startswith("-")}

    assert options("plan") - options("run") == {"--tensors"}
    assert options("run") <= options("plan")
