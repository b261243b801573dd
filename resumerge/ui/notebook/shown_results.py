"""What `run`, `resume` and `verify` return in Python, shown by a console and in a notebook."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rich.console import RenderableType

from resumerge.engine.recovery.verify import Verification
from resumerge.engine.reporter import Result
from resumerge.report.sizes import show_size
from resumerge.report.status import Status, status_of
from resumerge.ui.html.html import tag
from resumerge.ui.html.parts import card, outcome, section, table, tiles_of
from resumerge.ui.terminal.verified import show_verification

MOST_DAMAGED = 200
"""Rows of what is damaged."""


class ShownResult(Result):
    """A `Result` that is shown as the status of its run: what happened, plots, attempts."""

    @classmethod
    def of(cls, result: Result) -> ShownResult:
        """The same result."""
        return cls(**_values(result))

    @property
    def status(self) -> Status:
        """The status of the run, as `resumerge.status` gives it, read now."""
        return status_of(self.ledger.parent)

    def __rich__(self) -> RenderableType:
        return self.status.__rich__()

    def _repr_html_(self) -> str:
        return self.status._repr_html_()


class ShownVerification(Verification):
    """A `Verification` that is shown as a table."""

    @classmethod
    def of(cls, found: Verification) -> ShownVerification:
        """The same verification."""
        return cls(**_values(found))

    def __rich__(self) -> RenderableType:
        return show_verification(self, self._damaged())

    def _repr_html_(self) -> str:
        tiles = (
            ("tensors compared", str(self.units), ""),
            ("bytes", show_size(self.nbytes), "read again and found right"),
            ("damaged", str(len(self.damaged)), "to be computed anew" if self.damaged else ""),
            ("not computed yet", str(self.pending), ""),
        )
        again = "resume computes the damaged tensors anew, and nothing else: "
        mend = f"resumerge.resume({self.run!r})"
        if self.mirror is not None and self.remake:
            again = "on a machine that does not know the run, this computes everything again: "
            mend = f"resumerge.run(RECIPE, OUT, mirror={self.mirror!r}, restart=True)"
        elif self.mirror is not None and not self.marked:
            mend = f"resumerge.resume({self.mirror!r})"
        return card(
            tag(
                "header",
                tag("h1", "Verification ", self._outcome()),
                tag("p", tag("code", self.where), class_="muted"),
                tiles_of(tiles),
            ),
            section(
                "Damaged",
                tag("p", again, tag("code", mend)),
                table(("tensor or file", "found"), self._damaged()),
            )
            if self.damaged
            else None,
        )

    def _outcome(self) -> object:
        return outcome("done", "intact") if self.intact else outcome("failed", "damaged")

    def _damaged(self) -> list[tuple[str, str]]:
        more = len(self.damaged) - MOST_DAMAGED
        rows = list(self.damaged.items())[:MOST_DAMAGED]
        return [*rows, (f"and {more} more", "")] if more > 0 else rows


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}
