"""A reporter for users of Python, whose messages name arguments and not options."""

from __future__ import annotations

from dataclasses import replace

from resumerge.engine.reporter import ProgressUpdate, Reporter, Result
from resumerge.options.in_python import in_python
from resumerge.planning import Plan
from resumerge.planning.estimates.estimate import Prediction
from resumerge.sources.remote.prefetch import DownloadProgress


class PythonReporter(Reporter):
    """A reporter that passes messages on with ``threads=1`` in place of ``--threads 1``.

    Args:
        to: the reporter that receives the messages.

    Attributes:
        notes: the notes that were passed on, without duplicates.
    """

    def __init__(self, to: Reporter) -> None:
        self._to = to
        self.notes: list[str] = []

    def doing(self, what: str) -> None:
        self._to.doing(what)

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        spoken = replace(plan, notes=tuple(map(in_python, plan.notes)))
        self._keep(*spoken.notes, *map(in_python, predicted.estimate.notes))
        self._to.planned(run, spoken, predicted, resumed=resumed)

    def began(self, attempt: int, budget: int) -> None:
        self._to.began(attempt, budget)

    def heartbeat(self) -> None:
        self._to.heartbeat()

    def reading(self, done: int, total: int) -> None:
        self._to.reading(done, total)

    def fetching(self, fetched: DownloadProgress) -> None:
        self._to.fetching(fetched)

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._to.progressed(progressed)

    def note(self, text: str) -> None:
        self._keep(in_python(text))
        self._to.note(in_python(text))

    def waiting(self, text: str) -> None:
        self._to.waiting(in_python(text))

    def done(self, result: Result) -> None:
        spoken = replace(result, notes=tuple(map(in_python, result.notes)))
        self._keep(*spoken.notes)
        self._to.done(spoken)

    def _keep(self, *notes: str) -> None:
        self.notes += [note for note in notes if note not in self.notes]
