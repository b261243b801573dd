"""Promise: without-torch.txt is what pyproject.toml says, without torch; pages give its command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "release"))

import without_torch  # noqa: E402

COMMAND = "pip install -r without-torch.txt && pip install --no-deps -e ."


def test_the_file_is_made_from_the_project() -> None:
    assert without_torch.FILE.read_text(encoding="utf-8") == without_torch.contents()


def test_it_lacks_torch_alone() -> None:
    listed = without_torch.contents().splitlines()
    dependencies = without_torch.project()["dependencies"]
    assert set(dependencies) - set(listed) == {"torch>=2.2"}


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("torch>=2.2", False),
        ("torch", False),
        ("torch ; sys_platform == 'linux'", False),
        ("transformers[torch]>=4.45", False),
        ("torchlike>=1", True),
        ("types-torch", True),
    ],
)
def test_a_library_is_told_by_its_whole_name(text: str, stays: bool) -> None:
    assert (without_torch.without_torch([text]) == [text]) is stays


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "without-torch.txt"])
def test_the_pages_give_the_command(page: str) -> None:
    assert COMMAND in (ROOT / page).read_text(encoding="utf-8")
