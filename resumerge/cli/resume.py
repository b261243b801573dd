"""``resumerge resume``."""

from __future__ import annotations

import click

from resumerge.cli.merging.merge_command import merge
from resumerge.cli.parsing.arguments import (
    json_option,
    options_of,
    process_options,
    progress_option,
    run_argument,
)
from resumerge.cli.parsing.command import Command
from resumerge.options import Options
from resumerge.ui.progress.styles import Style


@click.command(
    "resume",
    cls=Command,
    exit_codes=True,
    examples=("resumerge resume", "resumerge resume hf://org/merged"),
)
@run_argument("the newest run")
@options_of("resume")
@process_options()
@progress_option
@json_option
def command(
    run: str | None,
    options: Options,
    detach: bool,
    no_supervise: bool,
    progress: Style,
    as_json: bool,
) -> None:
    """Continue an interrupted run. It may be on this machine or in a mirror."""
    merge(
        options,
        lambda session: session.resume(run),
        progress=progress,
        as_json=as_json,
        in_background=detach,
        stall_seconds=None if no_supervise else options.stall_timeout,
    )
