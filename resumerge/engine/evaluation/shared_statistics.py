"""A cache of statistics of whole tensors, which several units of a sweep need."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any


class SharedStatistics:
    """A cache of the most recently used statistics, by keys of their inputs.

    Units that need the same statistics follow each other in the queue, and each unit keeps a
    reference to its statistics. So the cache adds no memory to that of the units being computed.

    Args:
        most: the most statistics to keep; the least recently used are dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return cached statistics, or compute them. Other threads with the same key wait.

        If `compute` raises, the error is also raised in all waiting threads. A later call computes
        again.

        Args:
            key: a key that is equal for tensors with the same statistics (`Merged.statistics_key`).
            compute: called in this thread, without a lock, if the cache has no statistics for the
                key.
        """
        with self._lock:
            cached_future = self._futures.get(key)
            if cached_future is None:
                new_future = self._futures[key] = Future()
                while len(self._futures) > self._most:
                    self._futures.popitem(last=False)
            else:
                self._futures.move_to_end(key)
        if cached_future is not None:
            return cached_future.result()
        try:
            new_future.set_result(compute())
        except BaseException as error:
            with self._lock:
                if self._futures.get(key) is new_future:
                    del self._futures[key]
            new_future.set_exception(error)
            raise
        return new_future.result()
