"""``resumerge methods``."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.cli.parsing.arguments import argument, json_option
from resumerge.cli.parsing.command import Command
from resumerge.documents.methods import methods_json
from resumerge.ui.terminal.prose import Prose
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
        out.print(Group(*map(_show, document["methods"])), crop=False)


def _range(parameter: dict[str, Any]) -> str:
    low, high = parameter["low"], parameter["high"]
    if low is None:
        return "" if high is None else f"at most {high:g}"
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


def _show(method: dict[str, Any]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)  # users copy the name from here
    table.add_column()
    for parameter in method["parameters"]:
        default = "required" if parameter["required"] else f"default {parameter['default']}"
        scope = "of each model" if parameter["per_model"] else "of the merge"
        fact_text = ", ".join(filter(None, (scope, default, _range(parameter))))
        table.add_row(
            parameter["name"], Text.assemble(f"{parameter['meaning']} ", (f"({fact_text})", "dim"))
        )
    base_texts = {"none": "", "optional": ", base_model optional", "required": ", needs base_model"}
    heading = Prose(
        f" {method['summary']}{base_texts[method['base_model']]}", method["name"], "bold"
    )
    paper_lines = [Prose(f"  {paper['title']}, {paper['url']}") for paper in method["papers"]]
    return Group(heading, table, *paper_lines, "")
