"""The picture fits narrow and wide terminals, and is whole without colours, Unicode or terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from asking import status
from made_up_ledgers import make_ledger

COPIED = ("/", "resumerge ")
"""Beginnings of lines that are copied, and therefore are as long as they are."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("any-terminal")
    attempts = [
        {"n": n, "started": n * 1000, "ended": n * 1000 + 100, "outcome": outcome,
         "budget": budget, "peak_rss": 8 * 10**8, "bytes_committed": 10**9}
        for n, outcome, budget in ((1, "killed", 2 * 10**9), (2, "oom", 2 * 10**9),
                                   (3, "interrupted", 10**9))
    ]  # fmt: skip
    samples = [
        (n * 1000 + t, n, 10**8 * (5 + t // 30), 8 * 10**9 - (3 * 10**9 if t > 50 else 0),
         10**9 if n == 3 else 2 * 10**9, 2**27 >> (t // 25), 10**9 * (n - 1) + 10**7 * t)
        for n in (1, 2, 3) for t in range(100)
    ]  # fmt: skip
    lowered = {"reason": "the machine is short of memory", "before": 2**27, "after": 2**26}
    make_ledger(place / "state", attempts, samples, [(1, "batch_lowered", lowered)] * 4, output="Ü")
    return place


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_it_fits(place: Path, columns: int) -> None:
    text = status(place, COLUMNS=str(columns))
    assert all(len(line) <= columns for line in text.splitlines() if not line.startswith(COPIED))
    for name in ("memory", "batch size", "throughput", "attempt  ", "oom", "what happened"):
        assert name in text
    assert "\x1b" not in text


def test_what_is_copied_stays_in_one_line(place: Path) -> None:
    command = f"resumerge resume made-up --state-dir {place / 'state'}"
    assert command in status(place, COLUMNS="40").splitlines()
    assert f"resume   {command}" in status(place, COLUMNS="400").splitlines()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_without_unicode_it_says_the_same_with_other_characters(place: Path, encoding: str) -> None:
    drawn = status(place, COLUMNS="80", PYTHONIOENCODING=encoding)
    assert re.search(r"2 GB \|-+", drawn)
    assert "#" in drawn
    assert "+---" in drawn
    assert ("\\xdc" if encoding == "ascii" else "Ü") in drawn


def test_a_terminal_has_colours_unless_they_are_not_wanted(place: Path) -> None:
    colours = status(place, FORCE_COLOR="1", TERM="xterm-256color", COLUMNS="80")
    assert "\x1b[36m" in colours
    none = status(place, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color", COLUMNS="80")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", none)
    plain = status(place, COLUMNS="80")
    assert re.sub(r"\x1b\[[0-9;]*m", "", none) == plain


def test_what_was_learned_in_plain_words(place: Path) -> None:
    text = " ".join(status(place, COLUMNS="200").split())
    assert "Attempt 1 was killed; attempt 2 resumed." in text
    assert (
        "The kernel killed attempt 2 because memory ran out; "
        "attempt 3 resumed with a budget of 1 GB." in text
    )
    assert "batch size was lowered 4 times, down to 67.1 MB: the machine is short" in text
    assert "Other processes took 3 GB of memory" in text


def test_all_runs_at_a_glance(place: Path) -> None:
    make_ledger(place / "both" / "a", [{"n": 1, "started": 0, "ended": 9, "outcome": "oom"}])
    (place / "both" / "a" / "made-up").rename(place / "both" / "first")
    make_ledger(place / "both" / "b", [])
    (place / "both" / "b" / "made-up").rename(place / "both" / "second")
    text = status(place, "--state-dir", place / "both", COLUMNS="80")
    assert text.count("made-up") == 2
    assert re.search(r"interrupted +100%\n +10 kB of 10 kB, 1 attempt, last one oom", text)
    assert re.search(r"planned +100%\n +10 kB of 10 kB, 0 attempts", text)
