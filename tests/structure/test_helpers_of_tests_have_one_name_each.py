"""Promise: a test imports the helpers of its own folder, whichever files are collected first."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_folders_have_a_module_of_one_name() -> None:
    """Pytest puts each folder on the path, and Python imports only the first module of a name."""
    folders = defaultdict(list)
    for file in TESTS.rglob("*.py"):
        if file.name != "conftest.py" and not (file.parent / "__init__.py").exists():
            folders[file.stem].append(str(file.parent.relative_to(TESTS)))
    packages = [path for path in (TESTS / "support").iterdir() if (path / "__init__.py").exists()]
    for package in packages:
        folders[package.name].append("support")
    assert not {name: where for name, where in folders.items() if len(where) > 1}
