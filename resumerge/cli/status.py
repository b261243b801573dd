"""``resumerge status``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from resumerge.cli.parsing.arguments import (
    LocalPath,
    check_tensors,
    json_option,
    options_of,
    run_argument,
    tensors_option,
)
from resumerge.cli.parsing.command import Command
from resumerge.documents.status import status_json
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation.state import find_search
from resumerge.options import Options
from resumerge.ui.terminal.terminal import out, print_document, print_text


@click.command("status", cls=Command)
@run_argument("all runs and searches; with --html the newest run")
@options_of("status")
@click.option("--watch", is_flag=True, help="Refresh until the run ends.")
@click.option(
    "--html",
    type=LocalPath("page"),
    metavar="FILE",
    help="Write an HTML page to this file.",
)
@tensors_option
@json_option
def command(
    run: str | None,
    options: Options,
    watch: bool,
    html: Path | None,
    tensors: bool,
    as_json: bool,
) -> None:
    """Show progress, attempts, memory and events of one run, the trials of a search, or all."""
    check_tensors(tensors, as_json and not watch)
    runs = RunStore(options.state_dir)
    if html is not None:
        if watch or as_json:
            raise click.BadParameter("--html cannot be combined with --watch or --json")
        _write_page(runs, run, html)
    elif watch:
        if run is not None and find_search(runs, run):
            raise click.BadParameter("--watch follows a run; a search tells of each of its trials")
        _watch(runs, run, as_json)
    elif as_json:
        print_document(status_json(runs, run, every_tensor=tensors))
    else:
        from resumerge.ui.terminal.status import show_status

        document = status_json(runs, run)
        if document["runs"] or document["searches"]:
            out.print(show_status(document), crop=False)  # a command to copy stays on one line
        else:
            print_text(f"No runs in {runs.folder}")


def _write_page(runs: RunStore, run: str | None, html: Path) -> None:
    from resumerge.mirror.stores.registry import is_mirror_url
    from resumerge.ui.html.page_file import write_page, write_report
    from resumerge.ui.html.search import search_page

    if run is not None and find_search(runs, run):
        [search] = status_json(runs, run)["searches"]
        write_page(lambda: search_page(search), html)
        print_text(str(html.absolute()))
        return
    name = run if run is not None and is_mirror_url(run) else runs.find(run).name
    [run_document] = status_json(runs, name)["runs"]
    write_report(run_document, html)
    [later_document] = status_json(runs, name)["runs"]
    # The run may have begun or ended while the page was written.
    if later_document["state"] != run_document["state"]:
        write_report(later_document, html)
    print_text(str(html.absolute()))


def _watch(runs: RunStore, run: str | None, as_json: bool) -> None:
    from resumerge.ui.terminal.watch import watch, watch_json

    if as_json:
        watch_json(runs, run, sys.stdout)
    else:
        watch(runs, run, out)
