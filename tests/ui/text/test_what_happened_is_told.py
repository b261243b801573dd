"""The sentences of status say what attempts, events and samples say, of kinds known or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asking import run_of
from made_up_ledgers import make_ledger

from resumerge.documents.history import history_of
from resumerge.ui.text.narrative import narrative_of, state_sentence

GB = 10**9


def told(place: Path, *args: Any) -> str:
    make_ledger(place / "state", *args)
    run = run_of(place)
    return " ".join(narrative_of(run, history_of(run)))


def attempt(n: int, outcome: str, **columns: Any) -> dict[str, Any]:
    return {"n": n, "started": n * 100, "ended": n * 100 + 50, "outcome": outcome, **columns}


def test_a_halved_budget_after_the_kernel_killed(tmp_path: Path) -> None:
    text = told(tmp_path, [attempt(1, "oom", budget=2 * GB), attempt(2, "done", budget=GB)])
    assert text == (
        "The kernel killed attempt 1 because memory ran out; "
        "attempt 2 resumed with a budget of 1 GB."
    )


def test_why_an_attempt_stopped(tmp_path: Path) -> None:
    reason = {"reason": "The disk is full.\n  where: /content"}
    assert told(tmp_path, [attempt(1, "error")], (), [(1, "stopped", reason)]) == (
        "Attempt 1 stopped (The disk is full)."
    )


def test_many_attempts_are_summed_up(tmp_path: Path) -> None:
    text = told(tmp_path, [attempt(n, "oom" if n % 2 else "killed") for n in range(1, 11)])
    assert "Earlier attempts: out of memory 3 times, killed 3 times." in text
    assert text.count("attempt 8") == 1


@pytest.mark.parametrize(("taken", "back"), [(3.1, 0.0), (3.1, 2.0)])
def test_what_another_process_took(tmp_path: Path, taken: float, back: float) -> None:
    left = [6.0] * 5 + [6.0 - taken] * 5 + [6.0 - taken + back] * 5
    samples = [(t, 1, GB + t, int(x * GB) - t, GB, 2**27, t) for t, x in enumerate(left)]
    text = told(tmp_path, [attempt(1, "done")], samples)
    assert "Other processes took 3.1 GB of memory while attempt 1 ran" in text
    assert ("freed 2 GB" in text) == bool(back)


def test_memory_of_its_own_is_not_another_process(tmp_path: Path) -> None:
    samples = [(t, 1, t * GB, (9 - t) * GB, 9 * GB, 2**27, t) for t in range(8)]
    assert "Other processes" not in told(tmp_path, [attempt(1, "done")], samples)


def test_what_all_attempts_fetched_is_summed_up(tmp_path: Path) -> None:
    fetched = [(n, "streamed", {"bytes": n * GB, "requests": n}) for n in (1, 2)]
    text = told(tmp_path, [attempt(1, "interrupted"), attempt(2, "done")], (), fetched)
    assert "not stored (--stream): 3 GB by 3 requests in 2 attempts." in text
    text = told(tmp_path / "one", [attempt(1, "done")], (), fetched[:1])
    assert "not stored (--stream): 1 GB by 1 request." in text


def test_events_that_nobody_told_it_of(tmp_path: Path) -> None:
    events = [(1, "moon_was_full", {"of": [1, {"a": None}]})] * 3
    text = told(tmp_path, [attempt(1, "done")], (), events)
    assert "Moon was full (3 times)." in text


def test_reasons_that_differ_in_their_figures_are_one(tmp_path: Path) -> None:
    reasons = [
        "other processes took 2.9 GB; the cgroup has 50 MB of 4.0 GB available",
        "other processes took 3.1 GB; the cgroup has 0.2 GB of 4.0 GB available",
        "all processes were stalled 12% of the time, waiting for memory",
    ]
    lowered = [(1, "batch_lowered", {"reason": reason, "after": 2**22}) for reason in reasons]
    text = told(tmp_path, [attempt(1, "done")], (), [*lowered, (1, "batch_raised", {})])
    assert text == (
        "The batch size was lowered 3 times, down to 4.19 MB: other processes took 3.1 GB; "
        "the cgroup has 0.2 GB of 4.0 GB available (twice); all processes were stalled 12% of "
        "the time, waiting for memory (once); it was raised once."
    )


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("worker_crashed", {"cause": "crash", "signal": "SIGSEGV"}, "SIGSEGV"),
        (
            "worker_stalled",
            {"cause": "stall", "seconds": 90.0, "waited_for": "read math"},
            "no progress for 1 min 30 s: it read math",
        ),
    ],
)
def test_how_a_worker_died(tmp_path: Path, kind: str, data: dict[str, Any], why: str) -> None:
    text = told(tmp_path, [attempt(1, "killed"), attempt(2, "done")], (), [(1, kind, data)])
    assert text == f"Attempt 1 was killed ({why}); attempt 2 resumed."


@pytest.mark.parametrize(("left", "text"), [(1, "1 tensor is left"), (2, "2 tensors are left")])
def test_what_is_left_is_counted(left: int, text: str) -> None:
    run = {"state": "interrupted", "attempts": [{}], "units": {"total": 9, "committed": 9 - left}}
    assert state_sentence(run) == f"Not finished: {text}."
