"""The reporter: receives the progress of a run. Subclasses override the methods that they need."""

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
    """The end of a run.

    Args:
        id: the run's id.
        output: the path of the output; if this machine has none, the mirror's folder or address.
        ledger: the ledger's path; None if a mirror had the finished model of another machine.
        already_done: whether nothing was left to do.
        merging_seconds: seconds spent computing, writing and committing in this attempt.
        mirror: the address of the mirror, which has the model as well, or alone.
        notes: a line for each thing that the model lacks, and each warning about its numbers.
        output_bytes: bytes of all shards; 0 if nothing was left to do.
        peak_rss: bytes, the most of any attempt; 0 if nothing was left to do.
        seconds: seconds that this attempt took; 0 if nothing was left to do.
        accounts: the use of every tensor of the models; empty if nothing was left to do.
        changes: the changes of the numbers of each unit; empty if nothing was left to do, or
            nothing was measured.
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
        """The places of the complete model, as text: here, in its mirror, or in both."""
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
        """Tell that a phase which may take a while starts, like ``opening the models``."""

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        """Tell that the plan is complete and checked."""

    def began(self, attempt: int, budget: int) -> None:
        """Tell that an attempt is in the ledger; it may use `budget` bytes of RSS."""

    def heartbeat(self) -> None:
        """Tell that bytes were read or computed.

        It is called often, by any thread, and must return at once.
        """

    def reading(self, done: int, total: int) -> None:
        """Tell how many bytes a phase that only reads has read, and how many it will read."""

    def fetching(self, fetched: DownloadProgress) -> None:
        """Tell that source files are being downloaded, or were downloaded in this attempt."""

    def progressed(self, progressed: ProgressUpdate) -> None:
        """Tell that a batch was computed."""

    def note(self, text: str) -> None:
        """Tell the user something."""

    def waiting(self, text: str) -> None:
        """Tell what the run waits for; called several times a second for as long as it waits."""

    def done(self, result: Result) -> None:
        """Tell that the output is complete."""
