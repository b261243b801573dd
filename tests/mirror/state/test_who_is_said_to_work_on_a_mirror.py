"""Promise: the status of a mirror says that a machine works on it only as long as one may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from made_up_leases import ELSEWHERE
from made_up_mirrors import put

import resumerge
from resumerge.mirror.lease_record import LeaseRecord
from resumerge.mirror.names import lease_name


def ago(minutes: float = 0) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()


def status(made: Path, there: Path, *leases: LeaseRecord) -> dict[str, Any]:
    put(made, there)
    for token, lease in enumerate(leases, 1):
        (there / lease_name(token)).write_bytes(lease.as_bytes())
    [run] = resumerge.status(there, state_dir=there.parent / "state")["runs"]
    return dict(run)


@pytest.mark.parametrize("minutes", [0, 8, -8])
def test_one_that_was_heard_of_lately_is_named(made: Path, there: Path, minutes: float) -> None:
    """The other machine's clock may be ahead of this one's."""
    run = status(made, there, replace(ELSEWHERE, at=ago(minutes)))
    assert (run["state"], run["mirror"]["held_by"]) == ("running", "pid 77 on elsewhere")
    assert not run["mirror"]["here"]


@pytest.mark.parametrize(
    "facts",
    [
        lambda: {"at": ago(), "released": True},
        lambda: {"at": ago(minutes=11)},
        lambda: {"at": ago(minutes=-11)},
        lambda: {"at": "lately"},
        lambda: {"at": datetime.now().isoformat()},
    ],
    ids=["released", "silent", "of no time", "no time", "without a zone"],
)
def test_one_that_ended_or_was_not_heard_of_for_long_is_not(
    made: Path, there: Path, facts: Callable[[], dict[str, Any]]
) -> None:
    run = status(made, there, replace(ELSEWHERE, **facts()))
    assert (run["state"], run["mirror"]["held_by"]) == ("interrupted", None)


@pytest.mark.parametrize(
    ("seconds", "minutes", "state"),
    [
        (3600, 700 / 60, "running"),
        (3600, -700 / 60, "running"),
        (3600, 69, "running"),
        (3600, 71, "interrupted"),
        (1e9, 71, "interrupted"),
        (-1e9, 9, "running"),
    ],
)
def test_how_long_it_may_be_silent_is_what_its_lease_says(
    made: Path, there: Path, seconds: float, minutes: float, state: str
) -> None:
    """No lease lasts more than an hour, and clocks may differ by ten minutes."""
    run = status(made, there, replace(ELSEWHERE, at=ago(minutes), seconds=seconds))
    assert run["state"] == state


def test_without_a_lease_nobody_works_on_it(made: Path, there: Path) -> None:
    run = status(made, there)
    assert (run["state"], run["mirror"]["held_by"]) == ("interrupted", None)


def test_the_last_one_to_take_over_is_named(made: Path, there: Path) -> None:
    other = replace(ELSEWHERE, at=ago(), host="another")
    run = status(made, there, replace(ELSEWHERE, at=ago()), other)
    assert run["mirror"]["held_by"] == "pid 77 on another"
