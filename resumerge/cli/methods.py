"""``resumerge methods``."""

from __future__ import annotations

import click

from resumerge.cli.parsing.arguments import argument, json_option
from resumerge.cli.parsing.command import Command
from resumerge.report.methods import methods_json
from resumerge.ui.terminal.methods import show_methods
from resumerge.ui.terminal.terminal import out, print_document


@click.command("methods", cls=Command)
@argument("name", "[METHOD]", "Show this method only.", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the merge methods, their parameters and defaults."""
    document = methods_json(name)
    if as_json:
        print_document(document)
    else:
        out.print(show_methods(document))
