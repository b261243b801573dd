"""``resumerge explain``."""

from __future__ import annotations

from pathlib import Path

import click

from resumerge.cli.parsing.arguments import (
    LocalPath,
    chdir_option,
    json_option,
    options_of,
    recipe_argument,
)
from resumerge.cli.parsing.command import Command
from resumerge.documents.explanation import explain
from resumerge.options import Options
from resumerge.ui.html.explanation import explanation_page
from resumerge.ui.html.page_file import check_page_file, write_page
from resumerge.ui.progress.console_reporter import QuietReporter
from resumerge.ui.progress.keepalive import keepalive
from resumerge.ui.terminal.explanation import show_explanation
from resumerge.ui.terminal.plan import PLANNING
from resumerge.ui.terminal.terminal import err, out, print_document, print_text


@click.command(
    "explain",
    cls=Command,
    examples=["resumerge explain merge.yaml", "resumerge explain merge.yaml --html page.html"],
)
@recipe_argument
@options_of("explain")
@chdir_option
@click.option(
    "--html", type=LocalPath("page"), metavar="FILE", help="Write an HTML page to this file."
)
@json_option
def command(config: Path, options: Options, html: Path | None, as_json: bool) -> None:
    """Show what each parameter of a recipe comes to, layer by layer. Only headers are read."""
    if html is not None:
        check_page_file(html)
    with keepalive(err, PLANNING):
        document = explain(config, options, QuietReporter(err))
    if html is not None:
        write_page(lambda: explanation_page(document), html)
    if as_json:
        print_document(document)
    elif html is not None:
        print_text(str(html.absolute()))
    else:
        out.print(show_explanation(document), crop=False, soft_wrap=not out.is_terminal)
