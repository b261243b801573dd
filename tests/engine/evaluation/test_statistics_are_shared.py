"""Promise: statistics that several units need are computed once; an error is not kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from resumerge.engine.evaluation.shared_statistics import SharedStatistics


class Computed:
    """A computation that counts its calls, and waits until it may go on."""

    def __init__(self) -> None:
        self.times = 0
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self) -> int:
        self.times += 1
        self.begun.set()
        assert self.let_go.wait(60)
        return self.times


def test_who_asks_meanwhile_waits_for_the_first() -> None:
    shared, computed = SharedStatistics(2), Computed()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(shared.get, "a", computed)
        assert computed.begun.wait(60)
        others = [threads.submit(shared.get, "a", computed) for _ in range(2)]
        assert shared.get("b", lambda: "another") == "another", "nobody else waits"
        computed.let_go.set()
        assert [each.result(60) for each in (first, *others)] == [1, 1, 1]


def test_the_last_ones_are_kept() -> None:
    shared = SharedStatistics(2)
    made: list[str] = []
    for key in "abacab":
        shared.get(key, lambda key=key: made.append(key))
    assert "".join(made) == "abcb", "a was asked for again and again"


def test_what_failed_is_computed_again() -> None:
    shared = SharedStatistics(2)

    class Stopped(BaseException):
        pass

    def fail() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        shared.get("a", fail)
    assert shared.get("a", lambda: 1) == shared.get("a", fail) == 1
