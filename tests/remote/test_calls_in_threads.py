"""Promise: small requests are made at once, in order, and nobody waits for those of no more use."""

from __future__ import annotations

import threading

import pytest

from resumerge.remote.abandonable_threads import call_for_each


def test_results_are_in_the_order_of_the_items() -> None:
    """The first call ends last."""
    last_has_ended = threading.Event()

    def call(item: int) -> int:
        if item == 0:
            last_has_ended.wait()
        if item == 9:
            last_has_ended.set()
        return item * item

    assert call_for_each(call, range(10), 2) == [item * item for item in range(10)]
    assert call_for_each(call, [], 2) == []


def test_no_more_calls_run_than_there_are_threads() -> None:
    guard, together = threading.Lock(), threading.Barrier(3)
    running = 0
    most = 0

    def call(item: int) -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        together.wait()
        with guard:
            running -= 1

    call_for_each(call, range(9), 3)
    assert most == 3


def test_after_an_error_nobody_waits_and_no_call_begins() -> None:
    called: list[int] = []
    answered = threading.Event()

    def call(item: int) -> None:
        called.append(item)
        if item == 0:
            raise ValueError("no")
        answered.wait()

    before = {*threading.enumerate()}
    with pytest.raises(ValueError, match="no"):
        call_for_each(call, range(100), 4)
    answered.set()
    for thread in {*threading.enumerate()} - before:
        thread.join()
    assert len(called) <= 5
