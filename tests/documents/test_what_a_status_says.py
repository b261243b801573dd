"""Promise: the status of a run says what its ledger says, and who works on it now."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import change
from made_up_ledgers import at, make_ledger

from resumerge.documents.history import history_of
from resumerge.documents.panels import panels_of
from resumerge.documents.run import describe_from_ledger, empty_run
from resumerge.ledger import Ledger
from resumerge.ui.text.format import format_cluster

ATTEMPTS: list[dict[str, Any]] = [
    {"n": 1, "started": 0, "ended": 50, "outcome": "killed", "budget": 500, "peak_rss": 900,
     "bytes_committed": 4000},
    {"n": 2, "started": 100, "ended": 130, "outcome": "interrupted", "budget": 400,
     "peak_rss": 300, "bytes_committed": 3000},
]  # fmt: skip


def status(
    home: Path, *changes: str, alive: bool = False, attempts: Any = ATTEMPTS, **more: Any
) -> dict[str, Any]:
    """Return the status of a run of ten tensors of a thousand bytes, after SQL on its ledger."""
    folder = make_ledger(home, attempts, **more)
    for sql in changes:
        change(folder / "ledger.db", sql)
    with closing(Ledger(folder / "ledger.db", read_only=True)) as ledger:
        return describe_from_ledger(ledger, folder, alive=alive)


KILLED = "UPDATE attempts SET ended = NULL, outcome = NULL"
THREE_LEFT = "UPDATE units SET committed_blocks = 0, state = 'pending' WHERE number >= 7"


@pytest.mark.parametrize(
    ("state", "alive", "attempts", "expected"),
    [
        ("done", False, ATTEMPTS, "done"),
        ("done", True, ATTEMPTS, "running"),
        ("failed", False, ATTEMPTS, "failed"),
        ("running", True, ATTEMPTS, "running"),
        ("running", False, ATTEMPTS, "interrupted"),
        ("interrupted", False, [], "planned"),
    ],
)
def test_a_run_is_running_only_while_a_process_works_on_it(
    tmp_path: Path, state: str, alive: bool, attempts: Any, expected: str
) -> None:
    assert status(tmp_path, alive=alive, attempts=attempts, state=state)["state"] == expected


def test_a_run_that_cannot_be_read_has_the_same_fields(tmp_path: Path) -> None:
    assert {*status(tmp_path)} == {*empty_run("merged", "failed")}


@pytest.mark.parametrize("alive", [True, False])
def test_an_attempt_that_did_not_end_in_order_was_killed_when_it_was_last_seen(
    tmp_path: Path, alive: bool
) -> None:
    found = status(tmp_path, KILLED, alive=alive)["attempts"]
    ends = [(attempt["ended"], attempt["outcome"]) for attempt in found]
    last = (None, None) if alive else (at(130), "killed")
    assert ends == [(at(50), "killed"), last]
    assert [attempt["bytes_committed"] for attempt in found] == [4000, 3000]


@pytest.mark.parametrize("alive", [True, False])
def test_speed_is_that_of_the_last_attempt_and_what_is_left_takes_as_long(
    tmp_path: Path, alive: bool
) -> None:
    seen = f"UPDATE attempts SET last_seen = '{at(120)}' WHERE n = 2"
    found = status(tmp_path, THREE_LEFT, seen, alive=alive)
    assert found["bytes"] == {"total": 10_000, "committed": 7000}
    assert found["units"] == {"total": 10, "committed": 7}
    assert found["rate_bytes_per_s"] == 100, "of the time that it took"
    assert found["eta_s"] == (30 if alive else None), "nobody works on it"


def test_an_attempt_that_committed_nothing_has_no_speed(tmp_path: Path) -> None:
    found = status(tmp_path, "UPDATE attempts SET bytes_committed = 0 WHERE n = 2", alive=True)
    assert (found["rate_bytes_per_s"], found["eta_s"]) == (None, None)


@pytest.mark.parametrize(
    ("sampled", "expected"),
    [
        (2, {"budget": 350, "peak_rss": 900, "batch_bytes": 70}),
        (1, {"budget": 400, "peak_rss": 900, "batch_bytes": None}),
    ],
    ids=["of the last attempt", "of an earlier one"],
)
def test_memory_is_what_the_last_attempt_has_and_the_most_of_all(
    tmp_path: Path, sampled: int, expected: dict[str, Any]
) -> None:
    found = status(tmp_path, samples=[(101.0, sampled, 300, 2**33, 350, 70, 7000)])
    assert found["memory"] == expected


FAILING = (2, "mirror_failing", {"reason": "no route"})
RECOVERED = (2, "mirror_recovered", {})


@pytest.mark.parametrize(
    ("events", "state", "expected"),
    [
        ([FAILING], "running", "no route"),
        ([FAILING, RECOVERED], "running", None),
        ([FAILING, RECOVERED, FAILING], "running", "no route"),
        ([FAILING, (2, "batch_lowered", {})], "running", "no route"),
        ([FAILING], "done", None),
        ([], "running", None),
    ],
)
def test_a_mirror_fails_until_it_has_recovered(
    tmp_path: Path, events: Any, state: str, expected: str | None
) -> None:
    mirror = status(tmp_path, events=events, state=state, mirror="/drive")["mirror"]
    assert mirror == {
        "url": "/drive", "shards": 0, "bytes": 0, "failing": expected, "here": True,
        "held_by": None,
    }  # fmt: skip


def test_a_mirror_has_the_shards_that_it_was_given(tmp_path: Path) -> None:
    given = f"INSERT INTO mirrored VALUES ('model.safetensors', 10008, '{'0' * 64}', '{at(1)}')"
    card = f"INSERT INTO mirrored VALUES ('README.md', 7, '{'0' * 64}', '{at(1)}')"
    mirror = status(tmp_path, given, card, mirror="/drive")["mirror"]
    assert (mirror["shards"], mirror["bytes"]) == (1, 10_008)


def test_without_a_mirror_there_is_none(tmp_path: Path) -> None:
    assert status(tmp_path)["mirror"] is None


def task(attempt: int, node: str, peak: int) -> tuple[int, str, dict[str, Any]]:
    return attempt, "task_finished", {"node": node, "bytes": 10, "seconds": 1.0, "peak_rss": peak}


def test_of_a_merge_on_a_cluster_the_memory_of_the_tasks_counts(tmp_path: Path) -> None:
    """The attempt's process only journals tasks' results; an attempt without tasks merges."""
    tasks = [task(1, "a", 70), task(1, "b", 90), task(1, "b", 80)]
    found = status(tmp_path, events=tasks)
    assert [attempt["peak_rss"] for attempt in found["attempts"]] == [90, 300]
    assert found["memory"]["peak_rss"] == 300
    assert [node["peak_rss"] for node in found["cluster"]["nodes"]] == [70, 90]
    assert "peak memory of a task 90 B" in format_cluster(found)[-1]


@pytest.mark.parametrize(
    ("tasks", "batch", "shown"),
    [
        ([task(1, "a", 70)], 0, ["memory of the driver", "throughput"]),
        ([task(1, "a", 70)], 8, ["memory of the driver", "batch size", "throughput"]),
        ([], 0, ["memory", "batch size", "throughput"]),
    ],
    ids=["tasks alone", "an attempt without them", "no tasks"],
)
def test_what_a_cluster_has_no_samples_of_is_not_drawn(
    tmp_path: Path, tasks: Any, batch: int, shown: list[str]
) -> None:
    samples = [(t, 1, 40 + t, 900, 500, batch, 10 * t) for t in range(5)]
    panels = panels_of(history_of(status(tmp_path, events=tasks, samples=samples)))
    assert [panel.title for panel in panels] == shown
    assert panels[0].summary.startswith("peak 44 B" if tasks else "peak 900 B")
