"""The messages of a search about the merges of its trials."""

from __future__ import annotations

from collections.abc import Sequence

from resumerge.engine.reporter import ProgressUpdate, Reporter, Result
from resumerge.host.memory import measure_memory
from resumerge.optimisation.document import CHOOSING
from resumerge.planning.estimates.estimate import Prediction
from resumerge.planning.plan import Plan
from resumerge.sizes import show_size
from resumerge.sources.remote.prefetch import DownloadProgress


class TrialReporter(Reporter):
    """Forwards the relevant messages of trials' merges: phases, progress, each note once."""

    trials: Sequence[int] = ()

    def __init__(self, reporter: Reporter, jobs: int) -> None:
        self._reporter, self._jobs = reporter, jobs
        self._noted: set[str] = set()
        self._has_told_memory = False

    def doing(self, what: str) -> None:
        self._reporter.doing(what if what == CHOOSING else f"{self._named()}: {what}")

    def evaluating(self) -> None:
        """Report that the models are evaluated."""
        jobs = min(self._jobs, len(self.trials))
        self.doing("evaluating" + (f", {jobs} at a time" if jobs > 1 else ""))

    def _named(self) -> str:
        first, last = self.trials[0], self.trials[-1]
        return f"trial {first}" if first == last else f"trials {first} to {last}"

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        count = len(plan.variants) or 1
        jobs = min(self._jobs, count)
        if count > 1 and not self._has_told_memory:
            self._has_told_memory = True
            self._reporter.note(self._needed(plan, predicted, count, jobs))
        notes = plan.notes[1:] if plan.variants else plan.notes  # the first names the variants
        for text in (*notes, *predicted.estimate.notes):
            self.note(text)

    @staticmethod
    def _needed(plan: Plan, predicted: Prediction, count: int, jobs: int) -> str:
        size = plan.output_bytes // count
        text = (
            f"a batch of {count} models is merged in one run: "
            f"{show_size(predicted.need.peak_rss)} of memory, and {show_size(plan.output_bytes)} "
            "of disk until they are evaluated"
        )
        if jobs < 2:
            return text
        available_bytes = measure_memory().available
        return (
            f"{text}. {jobs} evaluations at a time, each of a model of {show_size(size)}: "
            f"{show_size(jobs * size)} of memory if each loads its model as it is stored; "
            f"{show_size(available_bytes)} are available"
            + (" (too little)" if jobs * size > available_bytes else "")
        )

    def heartbeat(self) -> None:
        self._reporter.heartbeat()

    def reading(self, done: int, total: int) -> None:
        self._reporter.reading(done, total)

    def fetching(self, fetched: DownloadProgress) -> None:
        self._reporter.fetching(fetched)

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._reporter.progressed(progressed)

    def waiting(self, text: str) -> None:
        self._reporter.waiting(text)

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._reporter.note(text)

    def done(self, result: Result) -> None:
        for text in result.notes:
            self.note(text)
