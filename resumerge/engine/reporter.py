"""The reporter, which receives the progress of a run. Subclasses override the methods they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from resumerge.accounts import Accounts
from resumerge.engine.changes import UnitChanges
from resumerge.output.model_files import RECIPE_IN_OUTPUT
from resumerge.planning.estimates.estimate import Prediction
from resumerge.planning.plan import Plan
from resumerge.sources.remote.prefetch import DownloadProgress


@dataclass(frozen=True)
class ProgressUpdate:
    """The progress of merging, in bytes and units of output."""

    bytes_done: int
    bytes_total: int
    units_done: int
    units_total: int
    unit: str


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Args:
        id: the id of the run, by which other commands find it.
        output: the path of the output; if the output is not on this machine, the mirror's folder or
            address.
        ledger: the ledger's path; None if another machine finished the model in a mirror.
        already_done: whether the run was complete before this command.
        merging_seconds: seconds spent computing, writing and committing in this attempt.
        mirror: the address of the mirror that has the model, perhaps as the only place; None
            without a mirror.
        notes: a line for each part that the model lacks, and for each warning about its numbers.
        output_bytes: the bytes of all shards; 0 if `already_done`.
        peak_rss: the largest peak RSS of all attempts, in bytes; 0 if `already_done`.
        seconds: the seconds that this attempt took; 0 if `already_done`.
        accounts: the use of every tensor of the models; empty if `already_done`.
        changes: the changes of the numbers of each unit; empty if `already_done`, or if nothing was
            measured.
    """

    id: str
    output: Path | str
    ledger: Path | None
    already_done: bool = False
    merging_seconds: float = 0.0
    mirror: str | None = None
    notes: tuple[str, ...] = ()
    output_bytes: int = 0
    peak_rss: int = 0
    seconds: float = 0.0
    accounts: Accounts = field(default_factory=Accounts, repr=False)
    changes: tuple[UnitChanges, ...] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """The output, as text."""
        return str(self.output)

    @property
    def is_here(self) -> bool:
        """Whether the model is in the output on this machine, and not only in the mirror."""
        out = self.output
        return isinstance(out, Path) and (out.is_file() or (out / RECIPE_IN_OUTPUT).exists())

    @property
    def places(self) -> str:
        """The places of the complete model, as text: on this machine, in its mirror, or both."""
        if self.mirror is None:
            return str(self.output)
        if self.where == self.mirror:
            return self.mirror
        if not self.is_here:
            return f"{self.mirror} (only there; --bring-back copies it to {self.output})"
        return f"{self.output}, and {self.mirror}"


class Reporter:
    """A receiver of a run's progress; this base class ignores every call."""

    def doing(self, what: str) -> None:
        """Report the start of a phase that may take a while, like ``opening the models``."""

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        """Report that the plan is complete and has passed the checks."""

    def began(self, attempt: int, budget: int) -> None:
        """Report that an attempt has begun; it may use `budget` bytes of RSS."""

    def heartbeat(self) -> None:
        """Report that bytes were read or computed.

        Any thread may call this method, and often: it must return at once.
        """

    def reading(self, done: int, total: int) -> None:
        """Report the bytes that a phase has read so far, and the total bytes that it will read."""

    def fetching(self, fetched: DownloadProgress) -> None:
        """Report the progress of the downloads of source files in this attempt."""

    def progressed(self, progressed: ProgressUpdate) -> None:
        """Report that a batch was computed."""

    def note(self, text: str) -> None:
        """Show a note to the user."""

    def waiting(self, text: str) -> None:
        """Report the reason of a wait; called several times a second while the run waits."""

    def done(self, result: Result) -> None:
        """Report that the output is complete."""
