"""The return values of the Python functions, with displays for consoles and notebooks."""

from __future__ import annotations

from dataclasses import fields
from io import StringIO
from shutil import get_terminal_size
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from resumerge.documents.run import describe_run
from resumerge.documents.status import status_of_mirror
from resumerge.engine.recovery.verification import Verification
from resumerge.engine.reporter import Result
from resumerge.errors import Problem
from resumerge.ui.html.comparison import comparison_fragment
from resumerge.ui.html.environment import render
from resumerge.ui.html.explanation import explanation_fragment
from resumerge.ui.html.page import fragment as status_fragment
from resumerge.ui.html.plan import fragment as plan_fragment
from resumerge.ui.html.search import search_fragment
from resumerge.ui.terminal.comparison import show_comparison
from resumerge.ui.terminal.explanation import show_explanation
from resumerge.ui.terminal.plan import show_plan
from resumerge.ui.terminal.search import show_search
from resumerge.ui.terminal.status import show_status
from resumerge.ui.terminal.verification import show_verification

MOST_DAMAGED = 200
"""The most rows of the table of damaged tensors."""


class _InConsole:
    """A mixin with the text for a console of IPython, the same as on the command line."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        text = StringIO()
        Console(file=text, width=get_terminal_size().columns, force_jupyter=False).print(self)
        printer.text(text.getvalue().rstrip())


class DisplayedStatus(_InConsole, dict[str, Any]):
    """The document of ``status --json``. The data of its plots is read when it is displayed."""

    def __rich__(self) -> RenderableType:
        return show_status(self)

    def _repr_html_(self) -> str:
        runs, searches = self["runs"], self["searches"]
        shown = [status_fragment(runs)] if runs or not searches else []
        return "".join([*shown, *map(search_fragment, searches)])


class DisplayedPlan(_InConsole, dict[str, Any]):
    """The document of ``plan --json``."""

    def __rich__(self) -> RenderableType:
        problems = [Text(str(Problem(**problem)), "red") for problem in self["problems"]]
        return Group(show_plan(self), *problems)

    def _repr_html_(self) -> str:
        return plan_fragment(self)


class DisplayedSearch(_InConsole, dict[str, Any]):
    """The document of ``search --json``."""

    def __rich__(self) -> RenderableType:
        return show_search(self)

    def _repr_html_(self) -> str:
        return search_fragment(self)


class DisplayedComparison(_InConsole, dict[str, Any]):
    """The document of ``compare --json``."""

    def __rich__(self) -> RenderableType:
        return show_comparison(self)

    def _repr_html_(self) -> str:
        return comparison_fragment(self)


class DisplayedExplanation(_InConsole, dict[str, Any]):
    """The document of ``explain --json``."""

    def __rich__(self) -> RenderableType:
        return show_explanation(self)

    def _repr_html_(self) -> str:
        return explanation_fragment(self)


class DisplayedResult(Result):
    """A `Result` that is displayed as the status of its run."""

    @classmethod
    def of(cls, result: Result, shown_in: int | None = None) -> DisplayedResult:
        """Copy a result.

        Args:
            result: the result of the merge; every field is copied.
            shown_in: the number of the notebook's cell that shows how the run ended.
        """
        copied = cls(**_values(result))
        object.__setattr__(copied, "_shown_in", shown_in)
        return copied

    @property
    def status(self) -> DisplayedStatus:
        """The document of `resumerge.status` for the run, read at this moment."""
        if self.ledger is None:
            assert self.mirror is not None
            return DisplayedStatus(runs=[status_of_mirror(self.mirror)], searches=[])
        return DisplayedStatus(runs=[describe_run(self.ledger.parent)], searches=[])

    def _ipython_display_(self) -> None:
        """Display the status, except in the cell whose live view shows the end of the run."""
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        shell = get_ipython()
        shown_in = getattr(self, "_shown_in", None)
        if shell is None or shown_in != shell.execution_count:
            display(self.status)  # type: ignore[no-untyped-call]

    def __rich__(self) -> RenderableType:
        return self.status.__rich__()

    def _repr_html_(self) -> str:
        return self.status._repr_html_()


class DisplayedVerification(_InConsole, Verification):
    """A `Verification` that is displayed as a table."""

    @classmethod
    def of(cls, found: Verification) -> DisplayedVerification:
        """Copy a verification."""
        return cls(**_values(found))

    def __rich__(self) -> RenderableType:
        return show_verification(self, self._damaged())

    def _repr_html_(self) -> str:
        return render(
            "verification.html.j2", found=self, damaged=self._damaged(), repair=self._repair()
        )

    def _repair(self) -> dict[str, str]:
        """Return the call that repairs the damage, and a description of its effect."""
        effect = "This computes the damaged tensors again, and nothing else:"
        call = f"resumerge.resume({self.run!r})"
        if self.mirror is not None and self.remake:
            effect = "On a machine that has no ledger of the run, this computes everything again:"
            call = f"resumerge.run(RECIPE, OUT, mirror={self.mirror!r}, restart=True)"
        elif self.linked:
            effect = (
                "A file of a model is damaged, of which the output has another name (link=True): "
                f"{', '.join(self.linked)}. Restore it; this looks again then:"
            )
            call = f"resumerge.verify({self.run!r})"
        elif self.mirror is not None and not self.marked:
            call = f"resumerge.resume({self.mirror!r})"
        return {"effect": effect, "call": call}

    def _damaged(self) -> list[tuple[str, str]]:
        more = len(self.damaged) - MOST_DAMAGED
        rows = list(self.damaged.items())[:MOST_DAMAGED]
        return [*rows, (f"and {more} more", "")] if more > 0 else rows


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}
