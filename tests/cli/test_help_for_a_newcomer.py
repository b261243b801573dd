"""Promise: a newcomer's first words print help, which lists only options with an effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import resumerge


@pytest.mark.parametrize("words", [[], ["cache"]])
def test_the_name_alone_is_help_and_no_error(words: list[str], tmp_path: Path) -> None:
    done = resumerge(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage:") == 1


def test_help_is_a_word_too(tmp_path: Path) -> None:
    for words in ([], ["run"], ["cache", "check"]):
        done = resumerge("help", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == resumerge(*words, "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", ["run", "plan"])
def test_the_output_before_the_recipe_is_told(command: str, tmp_path: Path) -> None:
    (tmp_path / "merge.yaml").write_text("merge_method: linear\n")
    done = resumerge(command, "merged", "merge.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "merge.yaml is a recipe: the recipe comes first, then the output" in done.stderr


@pytest.mark.parametrize("columns", [80, 100])
def test_no_summary_is_cut(columns: int, tmp_path: Path) -> None:
    shown = resumerge("--help", cwd=tmp_path, COLUMNS=str(columns)).stdout
    shown = shown.partition("Commands:")[2]
    assert "..." not in shown
    assert "from three questions or from options." in " ".join(shown.split())


def test_help_of_run_is_in_groups_with_examples_and_exit_codes(tmp_path: Path) -> None:
    shown = resumerge("run", "--help", cwd=tmp_path).stdout
    sections = dict(re.findall(r"(?m)^(\S[^\n]*):\n((?:  .*\n)+)", shown))
    assert "--mirror-wait" in sections["Mirror"]
    assert "--ray" in sections["Cluster"]
    assert "--strict" in sections["Checks"] and "--restart" in sections["Interruptions"]
    assert "--keep" in sections["Stages (recipes of several documents)"]
    assert sections["Examples"].count("resumerge run") == 2
    assert re.findall(r"(?m)^  ([\d, ]*\d) ", sections["Exit codes"]) == [
        *("0", "2", "75", "130, 143, 129", "1"),
    ]
    assert "OUT" not in sections["Other options"], "arguments have a section of their own"
    assert "docs/commands.md" in shown


def test_a_command_lists_only_options_that_mean_something_to_it(tmp_path: Path) -> None:
    def options(command: str) -> set[str]:
        return set(re.findall(r"--[\w-]+", resumerge(command, "--help", cwd=tmp_path).stdout))

    meaningless = {"--tensor-union", "--tensor-intersection", "--keep", "--seed", "--device"}
    assert not options("extract-expert") & meaningless
    assert {"--memory", "--mirror", "--shard-size"} <= options("extract-expert")
    assert not options("plan") & {"--detach", "--no-supervise", "--stall-timeout"}
