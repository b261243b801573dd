"""A run of 10,000 tensors and 100,000 samples: quick to show, a small page, no peak lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from asking import run_of, status
from made_up_ledgers import large_ledger, make_ledger
from pages import drawing, drawn_values, read_page

from resumerge.documents.status import status_json
from resumerge.ledger.run_store import RunStore
from resumerge.ui.html.page import page
from resumerge.ui.terminal.status import show_run


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("large-run")
    large_ledger(place / "state")
    return place


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def effort(work: Callable[[], object]) -> float:
    """Return the CPU time of some work, divided by that of a loop of 0.04 s on a quiet machine.

    Other processes of the machine slow down both.
    """
    loops, works = [], []
    for _ in range(3):
        loops.append(cpu_seconds(lambda: sum(n * n for n in range(1_000_000))))
        works.append(cpu_seconds(work))
    return min(works) / min(loops)


def test_the_page_is_made_within_a_second_and_is_small(large: Path) -> None:
    run = run_of(large)
    assert effort(lambda: page(run)) < 24
    assert len(page(run).encode()) < 250_000


def test_the_terminal_is_drawn_at_once(large: Path) -> None:
    from rich.console import Console

    def draw() -> None:
        console = Console(width=200)
        with console.capture():
            console.print(show_run(run_of(large)))

    assert effort(draw) < 8


def test_the_list_of_runs_takes_little_for_twenty_thousand_tensors(tmp_path: Path) -> None:
    """The limit allows for a check of every value that is read."""
    attempt = {"n": 1, "started": 0, "ended": 9, "outcome": "error"}
    make_ledger(tmp_path, [attempt], units=20_000)
    runs = RunStore(tmp_path)
    assert status_json(runs, None)["runs"][0]["units"] == {"total": 20_000, "committed": 20_000}
    assert effort(lambda: status_json(runs, None)) < 7


def test_a_single_peak_of_a_hundred_thousand_samples_is_seen(large: Path) -> None:
    memory = drawing(read_page(page(run_of(large))), "memory")
    values = drawn_values(memory)
    assert max(value for _, value in values) == pytest.approx(900_000_000, rel=1e-3)
    assert sum(value > 800_000_000 for _, value in values) == 1
    text = status(large, COLUMNS="200")
    assert "memory: peak 900 MB" in text
    [row] = [line for line in text.split("batch size")[0].splitlines() if "GB ┤" in line]
    assert sum(c in "▁▂▃▄▅▆▇█" for c in row) == 1
