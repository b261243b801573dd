"""``resumerge clean``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Group, RenderableType

from resumerge.cli.parsing.arguments import argument, json_option, options_of
from resumerge.cli.parsing.command import Command
from resumerge.engine.lifecycle.old_runs import OldRun, old_runs, remove_run
from resumerge.errors import refuse
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.options.types import parse_age
from resumerge.printable import printable
from resumerge.sizes import counted, show_age, show_size
from resumerge.storage import Storage
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.terminal.terminal import err, out, print_document, print_text


def _age(text: str) -> float:
    try:
        return parse_age(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("clean", cls=Command)
@argument(
    "names",
    "[RUN]...",
    "Ids or outputs. Default: all finished runs; with --older, all runs.",
    nargs=-1,
)
@click.option("--done", is_flag=True, help="Only finished runs.")
@click.option(
    "--older",
    metavar="AGE",
    type=_age,
    help="Only runs that have written nothing for this long, like 30d or 12h.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options_of("clean")
@json_option
def command(
    names: tuple[str, ...],
    options: Options,
    done: bool,
    older: float | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove the ledgers of old runs and the files of unfinished ones. Finished models stay."""
    chosen_runs = old_runs(RunStore(options.state_dir), names, done=done, older=older)
    if not as_json:
        out.print(_show(chosen_runs), crop=False, soft_wrap=not out.is_terminal)
    if chosen_runs and not yes:
        if as_json or not sys.stdin.isatty():
            raise refuse(
                "Nothing was removed: there is no terminal to ask for confirmation",
                found=f"{counted(len(chosen_runs), 'run')} to remove, and no --yes",
                fix="add --yes",
            )
        if not click.confirm(_question(chosen_runs)):
            return
    for run in chosen_runs:
        remove_run(run, Storage())
    if as_json:
        print_document({"removed": [run.as_json() for run in chosen_runs]})
    elif chosen_runs:
        print_text(f"Removed {counted(len(chosen_runs), 'run')}.", err)


def _show(runs: Sequence[OldRun]) -> RenderableType:
    """Return a paragraph for each run, with its state and the files to remove."""
    if not runs:
        return Prose("There are no runs to remove.")
    return Group(*(Prose(_described(run), run.id, "bold") for run in runs))


def _described(run: OldRun) -> str:
    text = f"{run.state}, {show_age(run.seconds)} old, ledger {show_size(run.ledger_bytes)}"
    if not run.unfinished:
        return text
    output = printable(run.named)
    if run.named != str(run.output):  # nothing is removed from a bucket
        size = show_size(run.unfinished_bytes)
        return f"{text}, unfinished files {size} on this machine; what is in {output} stays"
    return f"{text}, unfinished files {show_size(run.unfinished_bytes)} in {output}"


def _question(runs: Sequence[OldRun]) -> str:
    """Return the question for confirmation, with the number of runs and their bytes."""
    unfinished_bytes = sum(run.unfinished_bytes for run in runs)
    unfinished_text = (
        f", and {show_size(unfinished_bytes)} of unfinished models" if unfinished_bytes else ""
    )
    ledger_size = show_size(sum(run.ledger_bytes for run in runs))
    return f"Remove {counted(len(runs), 'run')} ({ledger_size} of ledgers{unfinished_text})?"
