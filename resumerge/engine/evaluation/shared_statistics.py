"""Statistics of whole tensors that several units of a sweep need, computed once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any


class SharedStatistics:
    """The statistics that were asked for last, by what they depend on.

    Units that need the same follow each other, and each keeps those that it was given: what is kept
    here besides is never more than the units that are being computed have anyway.

    Args:
        most: the number of statistics that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return statistics; the first thread that asks computes them, and the others wait.

        What `compute` raises is raised to all who wait; the next who asks computes again.
        """
        with self._lock:
            known = self._known.get(key)
            if known is None:
                found = self._known[key] = Future()
                while len(self._known) > self._most:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(key)
        if known is not None:
            return known.result()
        try:
            found.set_result(compute())
        except BaseException as error:
            with self._lock:
                if self._known.get(key) is found:
                    del self._known[key]
            found.set_exception(error)
            raise
        return found.result()
