"""Promise: each test is in the quick suite or in the rest, according to its measured time."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from suites.__main__ import check
from suites.measured import Measured, Times, divided, kept_times, measured_in, representatives
from suites.names import file_of, function_of
from suites.selection import Selection

TESTS = Path(__file__).parents[1]

TIMES = Times({"test_a.py::test_slow": 9.0, "test_b.py::test_chosen": 3.0}, {"test_b.py": 2.0})
CHOSEN = {"test_b.py::test_chosen[1]": "a promise"}
NODES = {
    "tests/room/test_a.py::test_slow[x::y]": "rest",
    "tests/room/test_a.py::test_new": "quick",
    "tests/room/test_b.py::test_chosen[1]": "quick",
    "tests/room/test_b.py::test_chosen[2]": "rest",
    "tests/other/test_b.py::test_quick": "quick",
}


def selected(suite: str) -> list[str]:
    """Run the selection of a suite on `NODES`."""
    selection = Selection(suite, TIMES, CHOSEN)
    items: list[Any] = [SimpleNamespace(nodeid=node) for node in NODES]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    selection.pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)  # type: ignore[arg-type]
    return [item.nodeid for item in items]


def test_a_test_is_in_one_suite() -> None:
    for suite in ("quick", "rest"):
        assert set(selected(suite)) == {node for node, its in NODES.items() if its == suite}
    assert sorted(selected("quick") + selected("rest")) == sorted(NODES)


def test_files_that_take_long_come_first() -> None:
    order = [Path(node.partition("::")[0]).name for node in selected("quick")]
    assert order == ["test_b.py", "test_b.py", "test_a.py"]
    assert [file_of(node) for node in selected("rest")] == ["test_a.py", "test_b.py"]


def test_the_rest_leaves_out_files_that_have_none_of_it() -> None:
    """The rest leaves out files of tests alone: a conftest.py is collected in both suites."""
    rest, quick = Selection("rest", TIMES, CHOSEN), Selection("quick", TIMES, CHOSEN)
    left_out = [
        name for name in ("a", "b", "c") if rest.pytest_ignore_collect(Path(f"test_{name}.py"))
    ]
    assert left_out == ["c"]
    assert not rest.pytest_ignore_collect(Path("conftest.py"))
    assert not quick.pytest_ignore_collect(Path("test_c.py"))


def test_a_function_is_slow_by_its_average_with_what_it_shares() -> None:
    found = {
        "test_a.py::test_quick": Measured(cases=10, own=2.0),
        "test_a.py::test_slow": Measured(cases=2, own=1.2),
        "test_b.py::test_sharing": Measured(cases=2, own=0.2, needs=3.0),
        "test_b.py::test_alone": Measured(cases=1, own=0.1),
        "test_c.py::test_many_share": Measured(cases=20, own=1.0, needs=3.0),
        "test_c.py::test_skipped": Measured(),
        "test_c.py::test_skipped_and_slow": Measured(),
    }
    before = Times({"test_c.py::test_skipped_and_slow": 7.0, "test_gone.py::test_x": 5.0}, {})
    times = divided(found, before)
    assert times.slow == {
        "test_a.py::test_slow": 1.2,
        "test_b.py::test_sharing": 0.2,
        "test_c.py::test_skipped_and_slow": 7.0,
    }
    assert times.quick == {"test_a.py": 2.0, "test_b.py": 0.1, "test_c.py": 4.0}


REPORT = """<testsuites><testsuite>
<testcase classname="tests.room.test_a.TestGroup" name="test_x[1-[]" time="3.0"><properties>
<property name="shared" value="1.0"/><property name="needs" value="1.5"/>
<property name="cpu" value="2.5"/></properties></testcase>
<testcase classname="tests.room.test_a.TestGroup" name="test_x[2]" time="0.5"/>
<testcase classname="tests.room.test_a" name="test_y" time="0.0"><skipped/></testcase>
<testcase classname="" name="tests.room.test_b" time="0.0"><error/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read_by_function(tmp_path: Path) -> None:
    (tmp_path / "quick.xml").write_text(REPORT)
    assert measured_in([tmp_path / "quick.xml"]) == {
        "test_a.py::TestGroup::test_x": Measured(cases=2, own=2.5, needs=1.5, cpu=2.5),
        "test_a.py::test_y": Measured(),
    }


SHARING = """
import time
import pytest

def compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope="session")
def server():
    compute(0.5)
    yield
    compute(0.5)

@pytest.fixture(scope="module")
def made(server):
    compute(0.2)

def test_first(made): pass
def test_second(made): pass
def test_alone(): pass
"""


def test_what_tests_share_is_noted_for_each(tmp_path: Path) -> None:
    (tmp_path / "test_sharing.py").write_text(SHARING)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "suites.selection", "--junitxml", "report.xml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS / "support")},
        check=True,
        capture_output=True,
    )
    first, second, alone = measured_in([tmp_path / "report.xml"]).values()
    assert first.needs == second.needs >= 0.6 > alone.needs == 0
    assert 0.1 <= first.cpu < 0.5 > alone.cpu, "a module's part counts, a session's does not"
    noted = [
        {each.attrib["name"]: float(each.attrib["value"]) for each in case.iter("property")}
        for case in ElementTree.parse(tmp_path / "report.xml").iter("testcase")
    ]
    assert noted[0]["shared"] >= 0.6
    assert noted[2]["shared"] >= 0.5, "what ends with the session"


def test_a_quick_file_that_computes_for_long_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "quick.xml"
    report.write_text(REPORT)
    assert check([report]) == 0
    report.write_text(REPORT.replace('name="cpu" value="2.5"', 'name="cpu" value="90"'))
    assert check([report]) == 1
    assert "test_a.py: its 2 quick tests took 90 s of CPU time" in capsys.readouterr().out


def test_what_is_kept_comes_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("suites.measured.KEPT", tmp_path / "times.txt")
    (tmp_path / "times.txt").write_text(Times(TIMES.slow, {**TIMES.quick, "test_c.py": 0.4}).text())
    assert kept_times() == TIMES


def test_a_test_that_stands_for_a_promise_is_there() -> None:
    """The test need not be slow: a test that is not slow is in the quick suite anyhow."""
    assert representatives(), "the quick suite has no slow test"
    files = {path.name: path for path in TESTS.rglob("test_*.py")}
    for name in representatives():
        tree = ast.parse(files[file_of(name)].read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function_of(name).rpartition("::")[2] in functions, name


def test_a_test_that_files_share_is_taken_by_one_of_them() -> None:
    """Pytest collects no test of a helper, so a test there runs only if a test file imports it."""
    defined, taken = set[str](), set[str]()
    for path in TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name.startswith("test_"):
            for imported in re.findall(r"^from \w+ import (\([^)]*\)|.*)$", text, re.MULTILINE):
                taken |= set(re.findall(r"\btest_\w+", imported))
        else:
            defined |= set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
    assert defined and defined <= taken
