"""Promise: bytes that arrive for the first times are progress, those sent again and again are none;
the rate is a limit, and time in which nothing moved is not made up for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from resumerge.mirror.transfer import RateLimit, TransferProgress


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("resumerge.mirror.transfer.time", SimpleNamespace(monotonic=clock))
    return clock


def progress(clock: Clock) -> TransferProgress:
    """Return the progress of an upload of a hundred bytes, ten seconds after the last success."""
    progress = TransferProgress(None)
    progress.succeeded()
    progress.begin()
    progress.expect(100)
    clock.now += 10
    return progress


def test_bytes_count_up_to_four_times_the_file(clock: Clock) -> None:
    """A file is sent and compared, and both again after a failure."""
    moving = progress(clock)
    for _ in range(4):
        assert moving.moved(100) == 0
        assert moving.stalled_seconds() == 0
        clock.now += 10
    moving.moved(1)
    assert moving.stalled_seconds() == 10
    moving.begin()
    moving.expect(100)
    moving.moved(100)
    assert moving.stalled_seconds() == 0, "the next file has its own bytes"


def test_looking_whether_to_go_on_is_no_progress(clock: Clock) -> None:
    moving = progress(clock)
    moving.moved(0)
    assert moving.stalled_seconds() == 10


def test_bytes_of_no_file_are_no_progress(clock: Clock) -> None:
    """The bytes of a listing belong to no file: the file that was moved before is done."""
    moving = progress(clock)
    moving.begin()
    moving.moved(1)
    assert moving.stalled_seconds() == 10


def test_an_operation_that_succeeds_is_progress(clock: Clock) -> None:
    moving = progress(clock)
    moving.succeeded()
    assert moving.stalled_seconds() == 0


def test_a_pause_for_the_rate_is_no_stall(clock: Clock) -> None:
    moving = TransferProgress(10)
    moving.expect(100)
    assert moving.moved(100) == 10
    clock.now += 10
    assert moving.stalled_seconds() == 0
    clock.now += 3
    assert moving.stalled_seconds() == 3


def test_the_pauses_add_up_to_the_rate() -> None:
    clock = Clock()
    limit = RateLimit(100, clock)
    assert limit.seconds(50) == 0.5
    assert limit.seconds(50) == 1.0
    clock.now += 0.75
    assert limit.seconds(100) == 1.25


def test_time_in_which_nothing_moved_is_not_made_up_for() -> None:
    clock = Clock()
    limit = RateLimit(100, clock)
    limit.seconds(100)
    clock.now += 3600
    assert limit.seconds(100) == 1.0


def test_without_a_rate_nobody_waits() -> None:
    assert RateLimit(None).seconds(1 << 50) == 0
