"""``resumerge clean`` for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from resumerge.engine.lifecycle.old_runs import OldRun
from resumerge.printable import printable
from resumerge.sizes import counted, show_age, show_size
from resumerge.ui.terminal.prose import Prose


def show_old_runs(runs: Sequence[OldRun]) -> RenderableType:
    """Each run, and what is removed of it."""
    if not runs:
        return Prose("There are no runs to remove.")
    return Group(*(Prose(_described(run), run.id, "bold") for run in runs))


def _described(run: OldRun) -> str:
    text = f"{run.state}, {show_age(run.seconds)} old, ledger {show_size(run.ledger_bytes)}"
    if not run.unfinished:
        return text
    output = printable(run.named)
    if run.named != str(run.output):  # in a bucket, of which nothing is removed
        here = show_size(run.unfinished_bytes)
        return f"{text}, unfinished files {here} on this machine; what is in {output} stays"
    return f"{text}, unfinished files {show_size(run.unfinished_bytes)} in {output}"


def question(runs: Sequence[OldRun]) -> str:
    """What the user is asked before they are removed."""
    unfinished = sum(run.unfinished_bytes for run in runs)
    more = f", and {show_size(unfinished)} of unfinished models" if unfinished else ""
    ledgers = show_size(sum(run.ledger_bytes for run in runs))
    return f"Remove {counted(len(runs), 'run')} ({ledgers} of ledgers{more})?"
