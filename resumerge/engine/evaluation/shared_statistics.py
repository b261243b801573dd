"""Statistics of whole tensors that several units of a sweep need, computed once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any


class SharedStatistics:
    """A cache of the statistics that were asked for last, by keys of their inputs.

    Units that need the same statistics follow each other in the queue, and each keeps the
    statistics that it was given. So the cache holds no more than the units in work hold anyway.

    Args:
        most: the number of statistics that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return statistics; the first thread that asks computes them, and the others wait.

        If `compute` raises, all threads that wait get the error; a later call computes again.
        """
        with self._lock:
            cached = self._futures.get(key)
            if cached is None:
                new = self._futures[key] = Future()
                while len(self._futures) > self._most:
                    self._futures.popitem(last=False)
            else:
                self._futures.move_to_end(key)
        if cached is not None:
            return cached.result()
        try:
            new.set_result(compute())
        except BaseException as error:
            with self._lock:
                if self._futures.get(key) is new:
                    del self._futures[key]
            new.set_exception(error)
            raise
        return new.result()
