"""Promise: each change by `make mutate` is another program that compiles; files are unchanged."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import mutate

FILES = sorted((mutate.ROOT / "resumerge").rglob("*.py"))


@pytest.mark.parametrize("path", FILES[::40], ids=lambda path: path.name)
def test_they_can_be_compiled_and_differ(path: Path) -> None:
    source = path.read_bytes()
    before = ast.dump(ast.parse(source))
    for mutant in mutate.mutants_of(path.relative_to(mutate.ROOT)):
        assert ast.dump(ast.parse(mutant.applied(source))) != before, str(mutant)


def test_what_is_changed_and_what_is_for_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    (tmp_path / "x.py").write_text(
        '"""Words."""\n\n\ndef f(a: int = 3) -> int:\n    note(f"{a < 1}")\n'
        "    if a < 1 and not a:\n        raise refuse('no', where=a > 1)\n    return min(a, 9)\n"
    )
    after = {mutant.after for mutant in mutate.mutants_of(Path("x.py"))}
    assert after == {
        "(4)", "pass", "(a <= 1)", "(a < 1 or not a)", "(a < 1)", "(not a)", "(a)", "(2)",
        "(max(a, 9))", "(90)",
    }  # fmt: skip


def test_survivors_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The room has one line that can be changed, in two ways: its quick test notices one."""
    (tmp_path / "resumerge" / "room").mkdir(parents=True)
    (tmp_path / "tests" / "room").mkdir(parents=True)
    for package in ("resumerge", "resumerge/room"):
        (tmp_path / package / "__init__.py").write_text("")
    code = tmp_path / "resumerge" / "room" / "code.py"
    code.write_text("def large(n):\n    return n > 100\n")
    (tmp_path / "tests" / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--suite')\n\n\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    if config.getoption('--suite') == 'quick':\n"
        "        items[:] = [item for item in items if item.name != 'test_slow']\n"
    )
    (tmp_path / "tests" / "room" / "test_code.py").write_text(
        "from resumerge.room.code import large\n\n\n"
        "def test_it():\n    assert large(500) and not large(1)\n\n\n"
        "def test_slow():\n    assert not large(100)\n"
    )
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    assert mutate.main(["room", "--count", "9"]) == 1
    said = capsys.readouterr().out
    assert "noticed  resumerge/room/code.py:2: 100  ->  (1000)" in said
    assert "1 of 2 changes were noticed\nsurvived: resumerge/room/code.py:2: n > 100" in said
    assert code.read_text() == "def large(n):\n    return n > 100\n"
    (tmp_path / "tests" / "room" / "test_code.py").write_text("def test_it():\n    assert False\n")
    assert mutate.main(["room"]) == 2


def test_each_room_has_tests() -> None:
    """A room's tests are in the folder of its name, or in the folders that `ELSEWHERE` lists."""
    package = mutate.ROOT / "resumerge"
    rooms = [init.parent.relative_to(package) for init in package.glob("*/__init__.py")]
    assert len(rooms) > 20
    for room in map(str, rooms):
        assert mutate.tests_of_room(room) == [
            f"tests/{folder}" for folder in mutate.ELSEWHERE.get(room, (room,))
        ]


def test_those_of_a_file_are_its_rooms() -> None:
    assert mutate.tests_of_room("engine/recovery/recovery.py") == ["tests/engine/recovery"]
    assert mutate.tests_of_room("options/types.py") == ["tests/cli"]
    assert mutate.tests_of_room("engine/mirror_session/session.py") == ["tests/mirror"]
    assert mutate.tests_of_room("kernels/linalg") == ["tests/kernels"]
    assert mutate.tests_of_room("storage.py") == ["tests/storage"]
    with pytest.raises(LookupError, match="name them with --tests"):
        mutate.tests_of_room("retry.py")
