"""Promise: a progress bar shows the share that is done and the time left, in any width."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace

import pytest
from rich.console import Console

from resumerge.engine.reporter import ProgressUpdate
from resumerge.sizes import so_far
from resumerge.sources.remote.prefetch import DownloadProgress
from resumerge.ui.progress import bars, console_reporter, keepalive, progress_state
from resumerge.ui.progress.console_reporter import ConsoleReporter, QuietReporter
from resumerge.ui.progress.upload import UploadProgress

FILE, TENSOR = "model-00003-of-00007.safetensors", "model.layers.13.self_attn.q_proj.weight"


class Terminal:
    """A terminal of some columns, and a reporter that draws on it."""

    def __init__(self, columns: int) -> None:
        self.columns, self._shown = columns, io.StringIO()
        self.console = Console(file=self._shown, width=columns, force_terminal=True)
        self.reporter = ConsoleReporter(self.console)

    def lines(self) -> list[str]:
        """Return every line that was drawn or printed, without escape sequences."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown.getvalue())
        lines = [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]
        assert all(len(line) <= self.columns for line in lines)
        return lines

    def drawn(self) -> list[str]:
        """Wait until the bars are drawn again, and return their lines."""
        before = len(self.lines())
        while len(self.lines()) < before + 4:
            time.sleep(0.05)
        return self.lines()[before + 2 :]


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    terminal = Terminal(request.param)
    yield terminal
    terminal.reporter.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock of the progress bars by one that only the test advances; nothing stalls."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(bars, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(console_reporter, "STALL_SECONDS", 1e9)
    monkeypatch.setattr(progress_state, "WAITING_SECONDS", 1e9)
    return clock


@pytest.mark.parametrize("terminal", [40, 50, 60, 80, 120, 200], indirect=True)
def test_it_says_what_matters(terminal: Terminal, clock: SimpleNamespace) -> None:
    columns = terminal.columns
    for done in (10**8, 855 * 10**6):
        clock.now += 10.0
        terminal.reporter.fetching(DownloadProgress(FILE, done, 171 * 10**7))
        terminal.reporter.progressed(ProgressUpdate(done, 171 * 10**7, 1, 291, TENSOR))
    frame = {line.split()[0]: line for line in terminal.drawn()}
    for word, name in (("downloaded", FILE), ("merged", TENSOR)):
        said = frame[word]
        assert " 50% " in said
        assert re.search(r" [\d.]+ .B/s, \d+ (s|min) left", said)
        assert ("855 MB of 1.71 GB" in said) == (columns >= 60)
        assert ("━━" in said) == (columns >= 80)
        assert (name in said) == (columns >= 120)


@pytest.mark.parametrize("terminal", [50], indirect=True)
@pytest.mark.usefixtures("clock")
def test_a_time_that_is_not_known_yet_is_not_said(terminal: Terminal) -> None:
    for done in (10, 20):
        terminal.reporter.progressed(ProgressUpdate(done, 1000, 1, 291, TENSOR))
    [said] = {line for line in terminal.drawn() if line.startswith("merged")}
    assert said.split() == ["merged", "2%"]


@pytest.mark.parametrize("terminal", [50], indirect=True)
@pytest.mark.usefixtures("clock")
def test_what_repeats_is_drawn_in_the_same_place(terminal: Terminal) -> None:
    terminal.reporter.doing("opening the models")
    assert terminal.drawn()[0].startswith("opening the models")
    for _ in range(20):
        terminal.reporter.waiting("Waiting for memory: the machine has 1 MB left")
        time.sleep(0.05)
    assert terminal.drawn()[0].startswith("Waiting for memory: the machine has 1 MB left: ")
    assert so_far("merging", 0.9) == "merging"
    assert so_far("merging", 5.2) == "merging: 5 s so far"
    terminal.reporter.close()
    assert "\n" not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal._shown.getvalue()).strip()


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_an_upload_says_what_matters_too(terminal: Terminal, clock: SimpleNamespace) -> None:
    terminal.reporter.close()
    with UploadProgress(terminal.console) as upload:
        assert terminal.drawn()[0].startswith("comparing the model with the repo")
        upload.begins(FILE, 4 * 10**9, 4 * 10**9)
        for _ in range(3):
            clock.now += 10.0
            upload.moved(10**9)
        said = terminal.drawn()[-1]
    assert re.match(r"uploaded [━╸╺]+ +75% 3 GB of 4 GB, [\d.]+ .B/s, \d+ s left", said)


def test_a_time_that_swings_is_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(bars, "time", type("Clock", (), {"monotonic": lambda: now}))
    pace, done = bars.Pace(), 0
    assert pace.left(100) == ""
    for seconds, nbytes in ((0, 0), (10, 10), (20, 10), (20, 190)):
        now, done = now + seconds, done + nbytes
        pace.add(done)
    assert pace.rate == pytest.approx(4.2)
    assert pace.left(1000) == "4 min"
    now, done = now + 10, done + 420
    pace.add(done)
    assert pace.left(10_000) == "4 to 15 min"


def test_a_log_is_told_of_a_wait_once_and_then_now_and_then() -> None:
    for make in (ConsoleReporter, QuietReporter):
        shown = io.StringIO()
        reporter = make(Console(file=shown, width=80))
        for _ in range(20):
            reporter.waiting("Waiting for memory")
        reporter.close()
        assert shown.getvalue() == "note: Waiting for memory\n"


def test_lines_of_a_log_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    now, printed = 0.0, []
    monkeypatch.setattr(keepalive, "time", type("Clock", (), {"monotonic": lambda: now}))
    clock = keepalive.PrintClock()
    for second in range(24 * 3600):
        now = float(second)
        if clock.is_due(keepalive.LINE_SECONDS):
            clock.reset()
            printed.append(second)
    assert printed[:3] == [5, 10, 15]
    assert max(b - a for a, b in pairwise(printed)) == 60
    assert len(printed) < 1600
