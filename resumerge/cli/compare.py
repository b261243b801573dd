"""``resumerge compare``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.exceptions import Exit

from resumerge.cli.parsing.arguments import (
    LocalPath,
    argument,
    chdir_option,
    json_option,
    options_of,
)
from resumerge.cli.parsing.command import Command
from resumerge.comparison import compare_models
from resumerge.errors import Interrupted, Resumable
from resumerge.options import Options
from resumerge.ui.html.comparison import comparison_page
from resumerge.ui.html.page_file import check_page_file, write_page
from resumerge.ui.progress.keepalive import PrintClock
from resumerge.ui.progress.styles import Style, reporter_of
from resumerge.ui.terminal.comparison import show_comparison
from resumerge.ui.terminal.console import print_json_line
from resumerge.ui.terminal.terminal import (
    err,
    out,
    print_command_to_resume,
    print_document,
    print_text,
)
from resumerge.ui.text.commands import repeat_command


@click.command(
    "compare",
    cls=Command,
    examples=[
        "resumerge compare org/model ./tuned",
        "resumerge compare A B --base BASE",
        "resumerge compare org/model STAGE --recipe recipe.yaml",
    ],
)
@argument(
    "models",
    "A B…",
    "Two models or more (with --base, one or more), as a recipe names them: folders, weight files, "
    "Hub repos, places in buckets, each with +adapter or without.",
    nargs=-1,
    required=True,
)
@click.option("--base", metavar="BASE", help="The model that they were made of.")
@click.option(
    "--recipe",
    type=LocalPath("recipe"),
    metavar="CONFIG",
    help="A recipe of several documents: models called like one of them are its results (stages), "
    "which are computed and not written.",
)
@options_of("compare")
@chdir_option
@click.option(
    "--html", type=LocalPath("page"), metavar="FILE", help="Write an HTML page to this file."
)
@json_option
def command(
    models: tuple[str, ...],
    base: str | None,
    recipe: Path | None,
    options: Options,
    html: Path | None,
    as_json: bool,
) -> None:
    """Compare models: configs, tokenizers, and every tensor, read by ranges.

    A comparison that was stopped goes on where it was, if it is asked for again.
    """
    if html is not None:
        check_page_file(html)
    reporter = reporter_of(Style.AUTO, err, PrintClock())
    try:
        document = compare_models(models, base, options, reporter, recipe=recipe)
    except (Interrupted, Resumable) as stop_error:
        reporter.close()
        print_text(str(stop_error), err)
        if as_json:
            print_json_line(sys.stdout, **stop_error.as_json(), resume=repeat_command())
        print_command_to_resume(repeat_command())
        raise Exit(stop_error.exit_code) from None
    finally:
        reporter.close()
    if html is not None:
        write_page(lambda: comparison_page(document), html)
    if as_json:
        print_document(document)
    elif html is not None:
        print_text(str(html.absolute()))
    else:
        out.print(show_comparison(document), crop=False, soft_wrap=not out.is_terminal)
