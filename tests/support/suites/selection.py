"""The plugin of pytest: `--suite quick`, `--suite rest`, and the times that a run records."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from suites.measured import Times, kept_times, representatives
from suites.names import file_of, function_of


class Selection:
    """The tests of one suite, files that take long first, so that no process is left with one."""

    def __init__(self, suite: str, times: Times, chosen: dict[str, str]) -> None:
        self.quick = suite == "quick"
        self.times = times
        self.chosen = chosen
        self.seconds = dict(times.quick) if self.quick else {}
        for name, seconds in times.slow.items():
            if not self.quick or name in map(function_of, chosen):
                self.seconds[file_of(name)] = self.seconds.get(file_of(name), 0.0) + seconds

    def is_quick(self, node_id: str) -> bool:
        """Return whether a test belongs to the quick suite."""
        function = function_of(node_id)
        case = f"{file_of(node_id)}::{node_id.partition('::')[2]}"
        return function not in self.times.slow or bool({function, case} & self.chosen.keys())

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out files without a slow test, if the suite is the rest."""
        name = collection_path.name
        unneeded = name.startswith("test_") and name.endswith(".py") and name not in self.seconds
        return True if unneeded and not self.quick else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the tests of the suite, those of the files that take longest first."""
        kept, others = [], []
        for item in items:
            (kept if self.is_quick(item.nodeid) is self.quick else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = sorted(kept, key=self._place)

    def _place(self, item: pytest.Item) -> tuple[float, str]:
        file = item.nodeid.partition("::")[0]
        return -self.seconds.get(file_of(file), 0.0), file


class Clock:
    """A record of the seconds of each test, for which JUnit's one number is not enough.

    `shared` is the part of a test's time in which something was made for other tests, too, or was
    removed after the last test of a file. `needs` is the time of making everything that it shares
    with others, whichever test waited for it. `cpu` is CPU time, without what a session shares and
    what ends with a file: a server's whole CPU time counts when it has ended, whoever used it.
    """

    def __init__(self) -> None:
        self.making: list[str] = []  # scopes, from the outermost
        self.path: Path | None = None
        self.made: dict[str, dict[str, float]] = {}  # seconds, by scope and name of the fixture
        self.shared = 0.0
        self.cpu = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Begin to count, without the fixtures of another file."""
        if item.path != self.path:
            self.path = item.path
            self.made = {"session": self.made.get("session", {})}
        self.shared, self.cpu = 0.0, _cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        """Count what is made for more than one test; a fixture within another counts once."""
        scope = fixturedef.scope
        if scope == "function" or scope in self.making:
            return (yield)
        begun, cpu = time.perf_counter(), _cpu_seconds()
        self.making.append(scope)
        try:
            return (yield)
        finally:
            self.making.pop()
            if scope == "session":
                self.cpu += _cpu_seconds() - cpu
            if not self.making:
                seconds = time.perf_counter() - begun
                of_scope = self.made.setdefault(scope, {})
                of_scope[fixturedef.argname] = of_scope.get(fixturedef.argname, 0.0) + seconds
                self.shared += seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        """Record the sums."""
        begun, cpu = time.perf_counter(), _cpu_seconds()
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                self.shared += time.perf_counter() - begun
            else:
                cpu = _cpu_seconds()
            made = {name: took for scope in self.made.values() for name, took in scope.items()}
            names = getattr(item, "fixturenames", ())
            sums = {
                "shared": self.shared,
                "needs": sum(made.get(name, 0.0) for name in names),
                "cpu": cpu - self.cpu,
            }
            item.user_properties += [(name, f"{sums[name]:.2f}") for name in sums]


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


class Collection:
    """The collection of tests by a process: each process of a run has to collect all of them.

    Tests and the libraries that they import are a million objects that stay. Python's collector of
    garbage would look at them again and again, for a quarter of the time. Each process begins with
    another folder, so that a file is compiled by one process and read by the others.
    """

    def __init__(self, process: Mapping[str, Any]) -> None:
        self.number = int(str(process.get("workerid", "gw0")).removeprefix("gw"))
        self.processes = int(process.get("workercount", 1))

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session: pytest.Session) -> Iterator[object]:
        """Collect folders in an order of this process's own; `Selection` sorts the tests."""
        if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            tests = session.config.rootpath / "tests"
            folders = sorted(str(path) for path in tests.iterdir() if any(path.rglob("test_*.py")))
            first = self.number * len(folders) // self.processes
            session.config.args = folders[first:] + folders[:first]
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suite", choices=("quick", "rest"), help="tests that are quick, or others")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Clock())
    if suite := config.getoption("--suite"):
        config.pluginmanager.register(Selection(suite, kept_times(), representatives()))
        config.pluginmanager.register(Collection(getattr(config, "workerinput", {})))
