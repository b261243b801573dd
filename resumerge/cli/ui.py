"""``resumerge ui``."""

from __future__ import annotations

from pathlib import Path

import click

from resumerge.cli.parsing.arguments import LocalPath, argument
from resumerge.cli.parsing.command import Command
from resumerge.ui.terminal.terminal import print_text
from resumerge.ui.web.server import serve


@click.command("ui", cls=Command, examples=("resumerge ui merges", "resumerge ui . --port 8000"))
@argument(
    "folder",
    "FOLDER",
    "The folder of the models and outputs: the page uses no path outside of it.",
    type=LocalPath("folder"),
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at. Who reaches it can merge here: 0.0.0.0 is everybody.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=7860,
    show_default=True,
    help="The port to listen at; 0 for one that is free.",
)
def command(folder: Path, host: str, port: int) -> None:
    """Serve a page to merge from, in a browser.

    Merges go on when the page ends.
    """
    serve(folder, host, port, print_text)
