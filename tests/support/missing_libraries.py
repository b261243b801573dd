"""The plugin of pytest that skips tests whose libraries are not installed, like torch.

A test file, a fixture or a test that imports one of `LIBRARIES` is skipped with the reason if the
library is missing. Only imports by the tests count: if the package itself imports one that it
should not need, the test fails. A test that needs one in another process has the marker ``needs``.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

LIBRARIES = ("torch", "transformers", "peft", "diffusers", "mergekit", "sentence_transformers")
"""The libraries that the installation without torch lacks."""

ROOT = Path(__file__).parents[2]


def missing(error: BaseException | None) -> str | None:
    """Return the library that a test, not the package, did not find."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    library = error.name.partition(".")[0]
    if library not in LIBRARIES or find_spec(library) is not None:
        return None
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [file for file in files if file.is_relative_to(ROOT / "resumerge")]
    return None if ours else library


def _skip(report: Any, path: Path, library: str) -> None:
    report.outcome = "skipped"
    report.longrepr = (str(path), 0, f"Skipped: {library} is not installed")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "needs(library): skipped where a library is not installed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker names a missing library."""
    for mark in item.iter_markers("needs"):
        if find_spec(mark.args[0]) is None:
            pytest.skip(f"{mark.args[0]} is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Skip a test file that imports a missing library."""
    report: Any = yield
    call = getattr(report, "call", None)
    if report.failed and call is not None and call.excinfo is not None:
        library = missing(call.excinfo.value.__cause__)
        if library is not None:
            _skip(report, collector.path, library)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Skip a test that imports a missing library, or whose fixtures do."""
    report: Any = yield
    if report.failed and call.excinfo is not None:
        library = missing(call.excinfo.value)
        if library is not None:
            _skip(report, item.path, library)
    return report
