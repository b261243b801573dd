"""Promise: `make tests-of` names the tests of a source file, also those that use a helper."""

from __future__ import annotations

from pathlib import Path

import pytest
import tests_of as module

FOUND = {
    "resumerge/retry.py": "tests/mirror/runs/test_retrying_with_backoff.py",  # a name of the module
    "resumerge/ledger/units.py": "tests/ledger/test_how_much_is_done.py",  # a name of the folder
    "resumerge/engine/execute/scheduler.py": "tests/engine/execute/test_scans_run_ahead.py",
    "resumerge/planning/planner.py": "tests/planning/test_parts_of_a_model.py",  # a helper
    "resumerge/cli/clean.py": "tests/cli",  # by its command alone
}


@pytest.mark.parametrize("source", FOUND)
def test_they_are_among_what_is_found(source: str) -> None:
    found = {str(path.relative_to(module.ROOT)) for path in module.tests_of(module.ROOT / source)}
    assert FOUND[source] in found
    assert all((module.ROOT / path).exists() for path in found)


def test_a_file_that_nothing_imports_has_no_tests_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "TESTS", tmp_path / "tests")
    room, tests = tmp_path / "resumerge" / "room", tmp_path / "tests" / "room"
    for folder in (room, tests):
        folder.mkdir(parents=True)
    (room / "__init__.py").write_text("from resumerge.room.one import One\n")
    (room / "one.py").write_text("class One: ...\n")
    (room / "other.py").write_text("class Other: ...\n")
    (tests / "test_one.py").write_text("from resumerge.room import One\n")
    (tests / "helper.py").write_text("import resumerge.room.one\n")
    (tests / "test_helped.py").write_text("def test_it():\n    from helper import thing\n")
    (tests / "test_none.py").write_text("import resumerge\n")
    of_one = [path.name for path in module.tests_of(room / "one.py")]
    assert of_one == ["test_helped.py", "test_one.py"]
    assert list(module.tests_of(room / "other.py")) == [tests]
