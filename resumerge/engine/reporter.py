"""The reporter: receives the progress of a run. Subclasses override what they need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from resumerge.output.model_files import RECIPE_FILE
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
    """How a run ended.

    Args:
        id: of the run.
        output: the output; the mirror, where there is none on this machine: its address, unless it
            is a folder.
        ledger: None where a mirror had the finished model of another machine.
        already_done: nothing was left to do.
        merging_seconds: spent computing, writing and committing in this attempt.
        mirror: where the model is too, or alone.
        notes: what the model lacks, a line each.
        output_bytes: of all shards; 0 where nothing was left to do.
        peak_rss: bytes, the most of any attempt; 0 where nothing was left to do.
        seconds: that this attempt took; 0 where nothing was left to do.
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

    @property
    def where(self) -> str:
        """The output, as text."""
        return str(self.output)

    @property
    def is_here(self) -> bool:
        """Whether the output has the model, and not the mirror alone."""
        out = self.output
        return isinstance(out, Path) and (out.is_file() or (out / RECIPE_FILE).exists())

    @property
    def places(self) -> str:
        """Where the complete model is, as text: here, in its mirror, or in both."""
        if self.mirror is None:
            return str(self.output)
        if self.where == self.mirror:
            return self.mirror
        if not self.is_here:
            return f"{self.mirror} (only there; --bring-back copies it to {self.output})"
        return f"{self.output}, and {self.mirror}"


class Reporter:
    """Is called as a run progresses; this base class ignores every call."""

    def doing(self, what: str) -> None:
        """A phase that may take a while starts, like ``opening the models``."""

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        """The plan is complete and checked."""

    def began(self, attempt: int, budget: int) -> None:
        """An attempt started and is in the ledger; it may use `budget` bytes of RSS."""

    def heartbeat(self) -> None:
        """Bytes were read or computed. Called often, by any thread; must return at once."""

    def reading(self, done: int, total: int) -> None:
        """A phase that only reads has read so many bytes, of so many."""

    def fetching(self, fetched: DownloadProgress) -> None:
        """Source files are being downloaded, or were downloaded in this attempt."""

    def progressed(self, progressed: ProgressUpdate) -> None:
        """A batch was computed."""

    def note(self, text: str) -> None:
        """A message for the user."""

    def waiting(self, text: str) -> None:
        """The run waits, and for what. Called several times a second for as long as it does."""

    def done(self, result: Result) -> None:
        """The output is complete."""
