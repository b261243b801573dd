"""Promise: the commands that README.md and CONTRIBUTING.md name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from resumerge.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md"]


def code_of(page: str) -> list[str]:
    """Return what a page marks as code: the lines of blocks, and the texts between backticks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = [block for _, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)]
    indented = re.findall(r"^    (.*)$", text, re.M)
    return [*"\n".join(fenced).splitlines(), *indented, *re.findall(r"`([^`\n]+)`", text)]


def named(page: str, program: str) -> set[str]:
    """Return the first word after a program's name in each line of code that begins with it."""
    found = (re.match(rf"{program} ([a-z][\w-]*)", line) for line in code_of(page))
    return {match[1] for match in found if match}


@pytest.mark.parametrize("page", PAGES)
def test_the_targets_of_make_are_there(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.M))
    assert {"demo", "test"} <= named(page, "make") <= targets


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_are_there(page: str) -> None:
    assert named(page, "resumerge") <= set(COMMANDS)


def test_both_commands_that_do_all_set_up_stand_in_the_first_screen() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first = "\n".join(readme[:30])
    assert first.index("make demo") < first.index("make test") < first.index("pip install")
    assert len(readme) < 130
