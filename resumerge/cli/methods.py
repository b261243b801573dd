"""``resumerge methods``."""

from __future__ import annotations

import click

from resumerge.cli.parsing.arguments import argument, json_option
from resumerge.cli.parsing.command import Command
from resumerge.documents.methods import methods_json
from resumerge.ui.terminal.methods import show_methods
from resumerge.ui.terminal.terminal import out, print_document, print_text


@click.command("methods", cls=Command)
@argument("name", "[METHOD]", "Show this method only.", required=False)
@click.option("--names", is_flag=True, help="Print only the names, one per line.")
@json_option
def command(name: str | None, names: bool, as_json: bool) -> None:
    """List the merge methods, their parameters and defaults."""
    document = methods_json(name)
    if as_json:
        print_document(document)
    elif names:
        print_text("\n".join(method["name"] for method in document["methods"]))
    else:
        out.print(show_methods(document), crop=False)
