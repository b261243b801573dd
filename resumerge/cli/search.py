"""``resumerge search``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from resumerge.cli.parsing.arguments import (
    LocalPath,
    argument,
    chdir_option,
    json_option,
    options_of,
)
from resumerge.cli.parsing.command import Command
from resumerge.errors import Interrupted, Resumable
from resumerge.local_path import OUTPUT
from resumerge.options import Options
from resumerge.options.types import Seconds
from resumerge.ui.progress.keepalive import PrintClock
from resumerge.ui.progress.styles import Style, reporter_of
from resumerge.ui.terminal.console import print_json_line
from resumerge.ui.terminal.prose import say
from resumerge.ui.terminal.search import show_search, trial_line
from resumerge.ui.terminal.terminal import (
    err,
    out,
    print_command_to_resume,
    print_document,
    print_text,
)
from resumerge.ui.text.commands import repeat_command


@click.command(
    "search",
    cls=Command,
    exit_codes=True,
    examples=(
        "resumerge search space.yaml found --evaluate 'python score.py {model}' --trials 20",
        "resumerge search space.yaml found --evaluate './eval.sh {model}' --metric loss "
        "--direction minimize",
    ),
)
@argument(
    "space",
    "SPACE",
    "A recipe, some of whose values are ranges: {suggest: float, low: 0, high: 1}.",
    type=LocalPath("space"),
)
@argument(
    "folder",
    "OUT",
    "The folder for the trials, the best recipe and the best model.",
    type=LocalPath(OUTPUT),
)
@click.option(
    "--evaluate",
    metavar="CMD",
    required=True,
    help="The command that evaluates a model: {model} stands for its folder. It prints a number, "
    "or a JSON object of numbers, as its last line.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    metavar="N",
    help="Number of models to try, with those that were tried before.",
)
@click.option(
    "--sampler",
    type=click.Choice(["tpe", "random", "grid", "cmaes", "nsga2"]),
    default="tpe",
    show_default=True,
    help="How values are chosen.",
)
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    help="The number of the JSON object to look at. Given several times: several objectives.",
)
@click.option(
    "--direction",
    "directions",
    type=click.Choice(["maximize", "minimize"]),
    multiple=True,
    default=("maximize",),
    help="What is better; for several objectives, once for all or once for each.  "
    "[default: maximize]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar=Seconds.metavar,
    help="Seconds that an evaluation may take.  [default: no limit]",
)
@click.option(
    "--keep-best",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of models that stay on the disk.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of trials that are suggested together, and merged in one run, which reads the "
    "models once.  [default: as many as --jobs]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of evaluations at a time, of one batch. Each has its number, from 0 on, in "
    "RESUMERGE_JOB.",
)
@options_of("search")
@chdir_option
@json_option
def command(
    space: Path, folder: Path, evaluate: str, options: Options, as_json: bool, **chosen: Any
) -> None:
    """Search for the values of a recipe that an evaluation likes best.

    A search that was stopped goes on where it was, if it is asked for again.
    """
    from resumerge.optimisation.request import Search
    from resumerge.optimisation.run import run_search

    request = Search(space=space, out=folder, evaluate=evaluate, **chosen)
    reporter = reporter_of(Style.AUTO, err, PrintClock())

    def show_trial(row: dict[str, Any]) -> None:
        say(err, trial_line(row, request.metrics), f"trial {row['number']}:", "bold")

    try:
        document = run_search(request, options, reporter, show_trial)
    except (Interrupted, Resumable) as stop_error:
        reporter.close()
        print_text(str(stop_error), err)
        if as_json:
            print_json_line(sys.stdout, **stop_error.as_json(), resume=repeat_command())
        print_command_to_resume(repeat_command())
        raise Exit(stop_error.exit_code) from None
    finally:
        reporter.close()
    if as_json:
        print_document(document)
    else:
        out.print(show_search(document), crop=False, soft_wrap=not out.is_terminal)
