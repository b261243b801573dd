"""Calls in threads that are not waited for after an error or a signal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def call_for_each(
    call: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """Call a function with each item in daemon threads, and return the results in order.

    An error, or an exception that a signal handler raises, ends the waiting at once. Running calls
    are abandoned. A `ThreadPoolExecutor` would wait for them, and so for a server without answers.

    Args:
        call: the function; it may be abandoned, or ended with the process, at any point.
        items: the arguments; one call begins after the other in this order.
        threads: the most concurrent calls.

    Raises:
        Exception: the error of the first item, in order, whose call failed.
    """
    results = [Future[Result]() for _ in items]
    waiting_items = iter(list(zip(items, results)))  # threads may share an iterator of a list
    is_over = threading.Event()

    def work() -> None:
        for item, result in waiting_items:
            if is_over.is_set():
                return
            try:
                result.set_result(call(item))
            except BaseException as error:
                result.set_exception(error)

    try:
        for number in range(min(threads, len(items))):
            threading.Thread(target=work, name=f"request {number}", daemon=True).start()
        return [result.result() for result in results]
    finally:
        is_over.set()
