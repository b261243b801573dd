"""``resumerge plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resumerge.cli.parsing.arguments import (
    OutputPlace,
    argument,
    check_tensors,
    json_option,
    json_style,
    options_of,
    process_options,
    progress_option,
    recipe_argument,
    tensors_option,
)
from resumerge.cli.parsing.command import Command
from resumerge.documents.plan_report import describe_plan
from resumerge.engine.lifecycle.bucket_output import working_folder_of
from resumerge.engine.resources.allocation_errors import check_address_space
from resumerge.errors import Problem
from resumerge.options import Options
from resumerge.ui.progress.console_reporter import QuietReporter
from resumerge.ui.progress.keepalive import keepalive
from resumerge.ui.progress.styles import Style
from resumerge.ui.terminal.plan import PLANNING, show_plan
from resumerge.ui.terminal.terminal import err, print_document, print_text
from resumerge.ui.terminal.terminal import out as stdout


@click.command("plan", cls=Command)
@recipe_argument
@argument(
    "out",
    "[OUT]",
    "The folder, file or place in a bucket that the model would be written to.",
    required=False,
    type=OutputPlace(),
)
@options_of("plan")
@process_options(hidden=True)
@progress_option
@tensors_option
@json_option
def command(
    config: Path,
    out: Path | str | None,
    options: Options,
    progress: Style,
    tensors: bool,
    as_json: bool,
    **process: Any,
) -> None:
    """Check a merge and estimate its cost. Only headers are read; nothing is written.

    It takes the options of `run`; those that only say how a run proceeds are not listed.
    """
    check_address_space()
    as_json = json_style(progress, as_json) is Style.JSON
    check_tensors(tensors, as_json)
    folder: Path | None = None
    if out is not None:
        folder, options = working_folder_of(out, options)
    with keepalive(None if progress is Style.NONE else err, PLANNING):
        document = describe_plan(
            config, folder, options, progress.value, QuietReporter(err), every_tensor=tensors
        )
    if as_json:
        print_document(document)
    else:
        stdout.print(show_plan(document), crop=False)
    if document["problems"]:
        if not as_json:
            for problem in document["problems"]:
                print_text(str(Problem(**problem)), err)
        raise click.exceptions.Exit(2)
