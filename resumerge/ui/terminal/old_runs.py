"""``resumerge clean`` for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.engine.lifecycle.old_runs import OldRun
from resumerge.printable import printable
from resumerge.sizes import counted, show_age, show_size


def show_old_runs(runs: Sequence[OldRun]) -> RenderableType:
    """A line for each run."""
    if not runs:
        return Text("There is no run to remove.")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("run", "state", "age", "ledger", "unfinished files"):
        table.add_column(head, justify="left", no_wrap=True)
    for run in runs:
        left = show_size(run.unfinished_bytes) + f" in {printable(run.output)}"
        table.add_row(
            run.id,
            run.state,
            show_age(run.seconds),
            show_size(run.ledger_bytes),
            left if run.unfinished else "none",
        )
    return table


def question(runs: Sequence[OldRun]) -> str:
    """What the user is asked before they are removed."""
    unfinished = sum(run.unfinished_bytes for run in runs)
    more = f", and {show_size(unfinished)} of models that are not finished" if unfinished else ""
    ledgers = show_size(sum(run.ledger_bytes for run in runs))
    return f"Remove {counted(len(runs), 'run')} ({ledgers} of ledgers{more})?"
