"""Progress for programs: one JSON object per line."""

from __future__ import annotations

from typing import Any, TextIO

from resumerge.documents.accounts import describe_accounts, describe_changes
from resumerge.engine.opening.plan_rows import account_rows
from resumerge.engine.reporter import ProgressUpdate, Result
from resumerge.planning.estimates.estimate import Prediction
from resumerge.planning.plan import Plan
from resumerge.sources.remote.prefetch import DownloadProgress
from resumerge.ui.progress.keepalive import LINE_SECONDS, PrintClock, Seldom, Ticker
from resumerge.ui.progress.progress_state import ProgressState
from resumerge.ui.terminal.console import print_json_line


class JsonReporter(ProgressState):
    """A reporter that writes JSON Lines, and a line of kind ``alive`` after a long silence."""

    def __init__(self, stream: TextIO, clock: PrintClock | None = None) -> None:
        super().__init__()
        self._stream = stream
        self._fetched = ("", 0)
        self._clock = clock or PrintClock()
        self._is_time = Seldom()
        self._ticker = Ticker(self._tick)

    def close(self) -> None:
        """Stop writing."""
        self._ticker.stop()

    def _tick(self) -> None:
        """Write a sign of life if it is due. The ticker's thread calls this."""
        if self._clock.silence >= LINE_SECONDS:
            self._write("alive", doing=self.phase, text=self.line().strip())

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        largest_unit = predicted.estimate.largest
        self._write(
            "planned",
            run=run,
            resumed=resumed,
            units=len(plan.units),
            bytes=plan.output_bytes,
            shards=len(plan.shards),
            predicted_peak_rss=predicted.need.peak_rss,
            disk_needed=predicted.estimate.disk,
            download_bytes=predicted.estimate.download,
            estimate_s=predicted.seconds,
            basis=predicted.basis,
            largest_unit={"name": largest_unit.name, "bytes": largest_unit.nbytes},
            notes=[*plan.notes, *predicted.estimate.notes],
        )

    def fetching(self, fetched: DownloadProgress) -> None:
        super().fetching(fetched)
        state = (fetched.file, fetched.bytes_done)
        if state != self._fetched:
            self._fetched = state
            self._write(
                "fetching",
                file=fetched.file,
                bytes={"total": fetched.bytes_total, "done": fetched.bytes_done},
            )

    def progressed(self, progressed: ProgressUpdate) -> None:
        super().progressed(progressed)
        self._write(
            "progress",
            units={"total": progressed.units_total, "done": progressed.units_done},
            bytes={"total": progressed.bytes_total, "done": progressed.bytes_done},
        )

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def waiting(self, text: str) -> None:
        super().waiting(text)
        if self._is_time():
            self.note(text)

    def done(self, result: Result) -> None:
        self._write(
            "done",
            run=result.id,
            output=result.where,
            ledger=result.ledger and str(result.ledger),
            mirror=result.mirror,
            already_done=result.already_done,
            merging_s=round(result.merging_seconds, 3),
            bytes=result.output_bytes,
            peak_rss=result.peak_rss,
            notes=list(result.notes),
            accounts={
                **describe_accounts(account_rows(result.accounts), every=False),
                **describe_changes(result.changes),
            },
        )

    def _write(self, kind: str, **data: Any) -> None:
        self._clock.reset()
        print_json_line(self._stream, kind, **data)
