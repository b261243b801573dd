"""``resumerge verify``."""

from __future__ import annotations

import click

from resumerge.cli.parsing.arguments import json_option, options_of, run_argument
from resumerge.cli.parsing.command import Command
from resumerge.engine.recovery.verify import verify_mirror, verify_run
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.stores.registry import is_mirror_url
from resumerge.options import Options
from resumerge.storage import Storage
from resumerge.ui.progress.keepalive import keepalive
from resumerge.ui.terminal.terminal import err, out, print_document, stop
from resumerge.ui.terminal.verification import repair_advice, show_verification


@click.command("verify", cls=Command)
@run_argument("the newest run")
@options_of("verify")
@json_option
def command(run: str | None, options: Options, as_json: bool) -> None:
    """Check an output, finished or not, against its checksums."""
    runs = RunStore(options.state_dir)
    with keepalive(err, "reading the output again"):
        if run is not None and is_mirror_url(run):
            found = verify_mirror(run, runs, Storage())
        else:
            found = verify_run(runs.find(run), Storage())
    if as_json:
        print_document(found.as_json())
    else:
        out.print(show_verification(found), crop=False, soft_wrap=not out.is_terminal)
    if not found.intact:
        lines, command_to_type = repair_advice(found, options.state_dir)
        stop(lines, command_to_type)
