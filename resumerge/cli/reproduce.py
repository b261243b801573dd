"""``resumerge reproduce``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from resumerge.cli.merging.merge_command import merge
from resumerge.cli.parsing.arguments import (
    LocalPath,
    argument,
    json_option,
    options_of,
    process_options,
    progress_option,
)
from resumerge.cli.parsing.command import Command
from resumerge.errors import InputError
from resumerge.local_path import OUTPUT
from resumerge.options import Options
from resumerge.ui.progress.styles import Style
from resumerge.ui.terminal.console import print_json_line
from resumerge.ui.terminal.terminal import out as stdout


@click.command(
    "reproduce",
    cls=Command,
    exit_codes=True,
    examples=(
        "resumerge reproduce org/merged again",
        "resumerge reproduce merged again --threads 2",
    ),
)
@argument(
    "original",
    "OUT|REPO",
    "A model that resumerge has merged: its folder, org/name[@revision], or s3://bucket/prefix.",
)
@argument("out", "NEW", "The folder to make it again in.", type=LocalPath(OUTPUT))
@options_of("reproduce")
@process_options()
@progress_option
@json_option
def command(
    original: str,
    out: Path,
    options: Options,
    detach: bool,
    no_supervise: bool,
    progress: Style,
    as_json: bool,
) -> None:
    """Make a model again from its card, with its models as they were, and compare the two.

    Exits with 2 if they differ. Typed again after an interruption, it goes on.
    """

    def compare() -> int:
        from resumerge.engine.lifecycle.session import Session
        from resumerge.ui.progress.console_reporter import QuietReporter
        from resumerge.ui.terminal.reproduction import show_reproduction
        from resumerge.ui.terminal.terminal import err

        reproduction = Session(options, QuietReporter(err)).compare_with_original(original, out)
        if as_json:
            print_json_line(sys.stdout, "reproduced", **reproduction.as_json())
        else:
            stdout.print(
                show_reproduction(reproduction), crop=False, soft_wrap=not stdout.is_terminal
            )
        return 0 if reproduction.identical else InputError.exit_code

    merge(
        options,
        lambda session: session.reproduce(original, out),
        progress=progress,
        as_json=as_json,
        in_background=detach,
        stall_seconds=None if no_supervise else options.stall_timeout,
        then=compare,
    )
