"""``resumerge clean``."""

from __future__ import annotations

import sys

import click

from resumerge.cli.parsing.arguments import argument, json_option, options_of
from resumerge.cli.parsing.command import Command
from resumerge.engine.lifecycle.old_runs import old_runs, remove_run
from resumerge.errors import refuse
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.options.types import parse_age
from resumerge.sizes import counted
from resumerge.storage import Storage
from resumerge.ui.terminal.old_runs import question, show_old_runs
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
    found = old_runs(RunStore(options.state_dir), names, done=done, older=older)
    if not as_json:
        out.print(show_old_runs(found), crop=False, soft_wrap=not out.is_terminal)
    if found and not yes:
        if as_json or not sys.stdin.isatty():
            raise refuse(
                "Nothing was removed: there is no terminal to ask for confirmation",
                found=f"{counted(len(found), 'run')} to remove, and no --yes",
                fix="add --yes",
            )
        if not click.confirm(question(found)):
            return
    for run in found:
        remove_run(run, Storage())
    if as_json:
        print_document({"removed": [run.as_json() for run in found]})
    elif found:
        print_text(f"Removed {counted(len(found), 'run')}.", err)
