"""``resumerge verify``."""

from __future__ import annotations

import click
from click.exceptions import Exit

from resumerge.cli.parsing.arguments import json_option, options_of, run_argument
from resumerge.cli.parsing.command import Command
from resumerge.engine.lifecycle.recomputation import verify_sources
from resumerge.engine.recovery.verify import verify_mirror, verify_run
from resumerge.errors import InputError
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.stores.registry import is_mirror_url
from resumerge.options import Options
from resumerge.storage import Storage
from resumerge.ui.progress.console_reporter import QuietReporter
from resumerge.ui.progress.keepalive import keepalive
from resumerge.ui.terminal.terminal import err, out, print_document, stop
from resumerge.ui.terminal.verification import repair_advice, show_verification


@click.command("verify", cls=Command)
@run_argument("the newest run")
@options_of("verify")
@click.option(
    "--sources",
    is_flag=True,
    help="Also compute a sample of blocks again from the models, and compare them.",
)
@click.option("--all", "every", is_flag=True, help="With --sources: compute every block again.")
@json_option
def command(run: str | None, options: Options, sources: bool, every: bool, as_json: bool) -> None:
    """Check an output, finished or not, against its checksums.

    Exits with 75 if it is damaged, and with 2 if its models do not give its blocks. --threads,
    --device and --offline apply only with --sources.
    """
    if every and not sources:
        raise click.UsageError("--all says how much --sources compares: give both")
    runs = RunStore(options.state_dir)
    with keepalive(err, "reading the output again"):
        if sources:
            verification = verify_sources(run, options, QuietReporter(err), every=every)
        elif run is not None and is_mirror_url(run):
            verification = verify_mirror(run, runs, Storage())
        else:
            verification = verify_run(runs.find(run), Storage())
    if as_json:
        print_document(verification.as_json())
    else:
        out.print(show_verification(verification), crop=False, soft_wrap=not out.is_terminal)
    if not verification.intact:
        lines, command_to_type = repair_advice(verification, options.state_dir)
        stop(lines, command_to_type)
    if verification.recomputed is not None and verification.recomputed.differing:
        raise Exit(InputError.exit_code)
