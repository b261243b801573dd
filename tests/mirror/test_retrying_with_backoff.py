"""Promise: what fails for a moment is retried with growing pauses, within a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from resumerge.retry import Backoff, retry


class Failing:
    """Fails a number of times; its clock only moves while somebody sleeps."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or OSError("for now")
        self.calls, self.time = 0, 0.0
        self.pauses: list[float] = []

    def call(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return self.calls

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def retry(self, backoff: Backoff, **more: Callable[..., object]) -> int:
        return retry(
            self.call,
            backoff,
            sleep=self.sleep,
            clock=lambda: self.time,
            **more,  # type: ignore[arg-type]
        )


def test_pauses_double_up_to_the_longest() -> None:
    failing = Failing(5)
    assert failing.retry(Backoff(first=1, longest=5)) == 6
    assert failing.pauses == [1, 2, 4, 5, 5]


def test_the_time_is_limited() -> None:
    failing = Failing(100)
    with pytest.raises(OSError, match="for now"):
        failing.retry(Backoff(first=1, longest=4, seconds=10))
    assert failing.pauses == [1, 2, 4, 4]
    failing = Failing(100)
    failing.error.retry_after = 11.0  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="for now"):
        failing.retry(Backoff(first=1, longest=4, seconds=10))
    assert failing.calls == 1, "the server asks for more time than there is"


def test_the_number_of_calls_is_limited() -> None:
    failing = Failing(100)
    with pytest.raises(OSError, match="for now"):
        failing.retry(Backoff(first=1, longest=4, retries=3))
    assert (failing.calls, failing.pauses) == (4, [1, 2, 4])


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    failing = Failing(2)
    failing.error.retry_after = 7.0  # type: ignore[attr-defined]
    failing.retry(Backoff(first=1, longest=4))
    assert failing.pauses == [7, 7]
    with pytest.raises(OSError, match="for now"):
        Failing(2, failing.error).retry(Backoff(first=1, longest=4, longest_asked=5))


def test_a_permanent_error_is_not_retried() -> None:
    failing = Failing(1, ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        failing.retry(Backoff(first=1, longest=4))
    failing = Failing(1, PermissionError("denied"))
    with pytest.raises(PermissionError):
        failing.retry(
            Backoff(first=1, longest=4),
            is_temporary=lambda error: not isinstance(error, PermissionError),
        )
    assert failing.calls == 1


def test_progress_begins_the_pauses_again() -> None:
    failing = Failing(6)
    done = failing.retry(Backoff(1, 8, retries=3), progress=lambda: failing.calls // 3)
    assert done == 7
    assert failing.pauses == [1, 2, 1, 2, 4, 1]


def test_what_the_sleep_raises_ends_it() -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retry(Failing(1).call, Backoff(1, 1), sleep=interrupted)


def test_time_sleep_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert retry(Failing(2).call, Backoff(1, 8)) == 3
    assert pauses == [1, 2]
