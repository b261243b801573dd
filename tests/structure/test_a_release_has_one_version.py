"""Promise: the version is written in pyproject.toml, and released files have no other."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

import resumerge

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "release"))

from check_version import differences  # noqa: E402


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make the files of a release of 1.2.3, without differences."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "resumerge"\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2027-01-01\n")
    (tmp_path / "dist").mkdir()
    for name in ("resumerge-1.2.3.tar.gz", "resumerge-1.2.3-cp311-abi3-manylinux2014_x86_64.whl"):
        (tmp_path / "dist" / name).touch()
    return tmp_path


def test_a_tag_and_files_of_the_version_pass(tree: Path) -> None:
    assert list(differences(tree, "v1.2.3")) == []
    assert list(differences(tree, None)) == []


@pytest.mark.parametrize("tag", ["v1.2.30", "1.2.3", "v1.2"])
def test_another_tag_is_told(tree: Path, tag: str) -> None:
    [told] = differences(tree, tag)
    assert tag in told and "expected v1.2.3" in told


@pytest.mark.parametrize("name", ["resumerge-1.2.30.tar.gz", "resumerge-1.2-py3-none-any.whl"])
def test_another_file_is_told(tree: Path, name: str) -> None:
    (tree / "dist" / name).touch()
    [told] = differences(tree, "v1.2.3")
    assert name in told


def test_nothing_to_release_is_told(tree: Path) -> None:
    for path in (tree / "dist").iterdir():
        path.unlink()
    [told] = differences(tree, None)
    assert "make wheel" in told


def test_the_changelog_needs_the_version_for_a_tag(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert list(differences(tree, None)) == []
    [told] = differences(tree, "v1.2.3")
    assert "## [1.2.3]" in told


def test_the_installed_package_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert resumerge.__version__ == project["version"]
