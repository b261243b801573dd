"""A reporter in the worker that sends heartbeats to the supervisor."""

from __future__ import annotations

from resumerge.engine.reporter import ProgressUpdate, Reporter, Result
from resumerge.planning.estimates.estimate import Prediction
from resumerge.planning.plan import Plan
from resumerge.sources.remote.prefetch import DownloadProgress
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe


class HeartbeatReporter(Reporter):
    """A reporter that forwards every call to another reporter, and sends heartbeats.

    It also sends three facts: ``run`` is the run's id, ``budget`` the bytes of RSS that this worker
    may use, and ``floor`` the bytes of RSS that one thread needs.
    """

    def __init__(self, inner: Reporter, link: HeartbeatPipe) -> None:
        self._inner, self._link = inner, link

    def doing(self, what: str) -> None:
        self._link.heartbeat()
        self._inner.doing(what)

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        self._link.tell(run=run, floor=predicted.need.least_enough)
        self._inner.planned(run, plan, predicted, resumed=resumed)

    def began(self, attempt: int, budget: int) -> None:
        self._link.tell(budget=budget)
        self._inner.began(attempt, budget)

    def heartbeat(self) -> None:
        self._link.heartbeat()
        self._inner.heartbeat()

    def reading(self, done: int, total: int) -> None:
        self._link.heartbeat()
        self._inner.reading(done, total)

    def fetching(self, fetched: DownloadProgress) -> None:
        self._link.heartbeat()
        self._inner.fetching(fetched)

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._link.heartbeat()
        self._inner.progressed(progressed)

    def note(self, text: str) -> None:
        self._link.heartbeat()
        self._inner.note(text)

    def waiting(self, text: str) -> None:
        self._link.heartbeat()
        self._inner.waiting(text)

    def done(self, result: Result) -> None:
        self._inner.done(result)
