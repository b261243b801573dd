"""``resumerge push``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.exceptions import Exit

from resumerge.cli.parsing.arguments import LocalPath, argument, json_option, options_of
from resumerge.cli.parsing.command import Command
from resumerge.engine.push import commits_of, push
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Interrupted, Resumable
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.ui.progress.upload import UploadProgress
from resumerge.ui.terminal.console import print_json_line
from resumerge.ui.terminal.terminal import err, print_command_to_resume, print_document, print_text
from resumerge.ui.text.commands import repeat_command
from resumerge.ui.text.pushed import pushed_sentence


@click.command("push", cls=Command)
@argument(
    "out",
    "OUT",
    "The folder of a finished model, or its only file.",
    type=LocalPath("model"),
)
@argument(
    "repo",
    "REPO",
    "A model repo on the Hub: org/name. If it does not exist, a private one is created.",
)
@options_of("push")
@click.option(
    "--private/--public",
    default=True,
    help="Who may read a repo that is created. Default: private.",
)
@click.option("--branch", metavar="NAME", help="The branch to upload to; created if it is new.")
@click.option("--message", metavar="TEXT", help="The message of the commit.")
@json_option
def command(
    out: Path,
    repo: str,
    options: Options,
    private: bool,
    branch: str | None,
    message: str | None,
    as_json: bool,
) -> None:
    """Upload a finished model to the Hub. Files that the repo already has are skipped."""
    commit_settings, stop = commits_of(private, branch, message), StopRequest(final=True)
    try:
        with stop.listening(), UploadProgress(err) as progress:

            def moved(nbytes: int) -> None:
                stop.check()
                progress.moved(nbytes)

            pushed_model = push(
                out, repo, RunStore(options.state_dir), progress.begins, moved, commit_settings
            )
    except (Interrupted, Resumable) as stop_error:
        print_text(f"{stop_error}. Files that were uploaded are not uploaded again.", err)
        command_to_repeat = repeat_command()
        if as_json:
            print_json_line(sys.stdout, **stop_error.as_json() | {"resume": command_to_repeat})
        print_command_to_resume(command_to_repeat)
        raise Exit(stop_error.exit_code) from None
    if as_json:
        print_document(pushed_model.as_json())
    else:
        print_text(pushed_sentence(pushed_model.as_json()))
