"""Promise: what fails for a moment is retried with growing pauses, within a limited time."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from plain_folder import PlainFolder

from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Reason, Resumable
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.base import StoreError
from resumerge.options import Options
from resumerge.retry import Backoff, retry


class Failing:
    """A call that fails a number of times, with a clock that moves only during pauses."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or OSError("for now")
        self.calls, self.time = 0, 0.0
        self.pauses: list[float] = []

    def call(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return self.calls

    def fail(self, operation: str) -> None:
        self.call()

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


# Operations of a mirror


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that lists a failing mirror, and returns the number of its calls."""
    monkeypatch.setattr("resumerge.mirror.stores.base.Store.patience", 0.3)
    now = [0.0]  # time passes in pauses alone: a slow machine asks as often as any other
    monkeypatch.setattr("resumerge.mirror.retrying.clock", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))

    def ask(error: Exception, expected: type[Exception], text: str, times: int = 99) -> int:
        asked: list[None] = []

        def fails(operation: str) -> None:
            asked.append(None)
            if len(asked) <= times:
                raise error

        store = PlainFolder(tmp_path / "mirror", fails)
        with pytest.raises(expected, match=text) if text else nullcontext():
            retry_store(store, store.list)
        return len(asked)

    return ask


def test_a_mirror_that_fails_for_a_moment_is_asked_again(failing: Callable[..., int]) -> None:
    assert failing(OSError(errno.EIO, "for a moment"), Exception, "", times=1) == 2


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "broken"), StoreError("broken"), TimeoutError("broken")]
)
def test_one_that_fails_for_longer_can_be_resumed(
    failing: Callable[..., int], error: Exception
) -> None:
    assert failing(error, Resumable, "cannot be reached: .*broken") > 1


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_one_that_denies_is_not_asked_again(failing: Callable[..., int], number: int) -> None:
    error = OSError(number, "not for you")
    assert failing(error, InputError, r"not for you(.|\n)*change its permissions") == 1


def test_what_the_store_advises_is_what_the_user_reads(failing: Callable[..., int]) -> None:
    error = StoreError("not for you", fix="log in", denied=True)
    assert failing(error, InputError, r"found: *not for you\n(.|\n)*log in") == 1


@pytest.mark.parametrize(
    ("noun", "given", "fix"),
    [
        ("mirror", "", "resume from the copy"),
        ("output", "", "name another output"),
        ("mirror", "repo", "name another repo"),
    ],
)
def test_a_place_that_denies_is_called_what_it_is_for_the_user(
    tmp_path: Path, noun: str, given: str, fix: str
) -> None:
    def denies(operation: str) -> None:
        raise PermissionError(errno.EACCES, "not for you")

    store = PlainFolder(tmp_path / "mirror", denies)
    store.noun = noun
    with pytest.raises(InputError) as refused:
        retry_store(store, store.list, given)
    [problem] = refused.value.problems
    assert problem.what == f"The {given or noun} cannot be used"
    assert problem.where == store.url and problem.fix.endswith(fix)


def test_a_place_is_asked_for_as_long_as_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("resumerge.mirror.retrying.clock", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    store = PlainFolder(tmp_path / "mirror", Failing(99).fail)
    for patience in (7.0, 50.0):
        store.patience, now[0] = patience, 0.0
        with pytest.raises(Resumable, match="cannot be reached: for now") as stopped:
            retry_store(store, store.list)
        assert stopped.value.reason == Reason.MIRROR
        assert abs(now[0] - patience) < 2.0, "the longest pause"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("nothing"),
        ValueError("nothing"),
        Resumable(Reason.MIRROR, "nothing to wait"),
    ],
)
def test_a_missing_file_a_bug_and_what_is_explained_are_the_callers(
    failing: Callable[..., int], error: Exception
) -> None:
    assert failing(error, type(error), "nothing") == 1


def test_an_operation_is_repeated_no_longer_than_mirror_wait(tmp_path: Path) -> None:
    def patience(**given: float) -> float:
        options = Options(mirror=str(tmp_path / "mirror"), **given)
        return MirrorSession(
            str(tmp_path / "mirror"), options, Reporter(), StopRequest()
        ).store.patience

    usual = patience()
    assert patience(mirror_wait=5.0) == 5.0 < usual
    assert patience(mirror_wait=600.0) == usual
