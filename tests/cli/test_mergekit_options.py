"""A command line copied from a tutorial of mergekit means the same here, or is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from beside_mergekit import run_beside_mergekit
from commands import resumerge

from resumerge.cli.parsing.mergekit_options import without_mergekit_options
from resumerge.cli.plan import command as plan
from resumerge.cli.run import command as run

REFUSED = {"--unsafe-truncate-embeddings", "--no-safe-serialization"}
HELP = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
VALUES = {"TEXT": "x", "INTEGER": "2", "SIZE": "1B"}


def options_of_mergekit(script: str = "mergekit-yaml") -> list[str]:
    """Return every option of a command of mergekit but `REFUSED`, with a value if it has one."""
    command = str(Path(sys.executable).with_name(script))
    text = run_beside_mergekit(Path.cwd(), HELP, command)
    found = []
    for line in re.findall(r"^  (-.+?)(?:  |$)", text, re.MULTILINE):
        names = re.split(r"[ ,/]+", line.strip())
        value = VALUES[names.pop()] if names[-1] in VALUES else ""
        found += [f"{name} {value}".strip() for name in names]
    assert {"-v", "--cuda", "--out-shard-size 1B", "--lora-merge-cache x"} <= set(found)
    return sorted(set(found) - REFUSED)


@pytest.mark.parametrize("command", ["run linear.yaml out", "plan linear.yaml"])
def test_every_option_of_mergekit_is_taken(command: str, place: Path, tmp_path: Path) -> None:
    devices = ("--cuda", "--device", "--gpu-rich")
    options = [o for o in options_of_mergekit() if not o.startswith(devices)]
    words = command.replace("out", str(tmp_path / "out")).split()
    words += ["--state-dir", str(tmp_path / "state")]
    done = resumerge(*words, *" ".join(options).split(), cwd=place)
    assert done.returncode == 0, done.stderr
    assert "--lazy-unpickle is an option of mergekit that has no effect here" in done.stderr
    assert "-v is an option" not in done.stderr


def test_every_option_of_mergekit_pytorch_is_one_of_mergekit_yaml_or_taken() -> None:
    more = set(options_of_mergekit("mergekit-pytorch")) - set(options_of_mergekit())
    taken = {word for option in run.params for word in option.opts}
    assert {"-u", "--tensor-union", "-i", "--tensor-intersection"} == more <= taken


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_an_option_that_would_change_the_output_is_refused(option: str, place: Path) -> None:
    done = resumerge("run", "linear.yaml", "out", option, cwd=place)
    assert done.returncode == 2
    assert f"{option} is an option of mergekit that is not followed here" in done.stderr
    assert "leave the option out" in done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--cuda run c o", "run --device cuda c o"),
        ("-v run -vv c o", "run -v -vv c o"),
        ("--lora-merge-cache run run c o", "run c o"),
        ("run c o -j 4", "run c o --threads 4"),
        ("run c o -j4", "run c o --threads 4"),
        ("--state-dir s plan c", "plan --state-dir s c"),
        ("run c o --transformers-cache=x", "run c o"),
        ("run -- --cuda o", "run -- --cuda o"),
        ("status run", "status run"),
        ("--help run", "--help run"),
        ("resume -v", "resume -v"),
    ],
)
def test_words(before: str, after: str) -> None:
    assert without_mergekit_options(before.split())[0] == after.split()


@pytest.mark.parametrize("words", ["--lora-merge-dtype float32", "--lora-merge-dtype=float32"])
def test_it_is_told_in_what_type_adapters_are_merged(words: str) -> None:
    taken, notes = without_mergekit_options(["run", "c", "o", *words.split()])
    assert taken == ["run", "c", "o"]
    [note] = notes
    assert note.startswith("--lora-merge-dtype float32: adapters are applied in float32")


@pytest.mark.parametrize(
    ("letter", "name"), [("-u", "tensor_union"), ("-i", "tensor_intersection")]
)
def test_the_letters_of_mergekit_pytorch(letter: str, name: str) -> None:
    for command in (run, plan):
        assert command.make_context("resumerge", [letter, "c", "o"]).params[name] is True
