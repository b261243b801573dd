"""``resumerge cache check`` and ``resumerge cache repair``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from rich.console import Group, RenderableType

from resumerge.buckets.address import is_bucket
from resumerge.cli.parsing.arguments import json_option, options_of, target_argument
from resumerge.cli.parsing.command import Command
from resumerge.documents.cache_check import CachedFile, CacheReport, check_cache, repair_cache
from resumerge.options import Options
from resumerge.printable import printable
from resumerge.sizes import show_size
from resumerge.ui.progress.keepalive import keepalive
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.terminal.terminal import err, out, print_document, stop
from resumerge.ui.text.commands import repair_command

_COLOURS = {"intact": "green", "repaired": "yellow", "damaged": "red", "missing": "red"}


@click.group("cache", no_args_is_help=True)
def command() -> None:
    """Check and repair cached sources."""


@command.command("check", cls=Command)
@target_argument
@options_of("cache check")
@json_option
def check(target: str, options: Options, as_json: bool) -> None:
    """Compare cached files with their checksums. Exits with 75 if one is damaged or missing."""
    _show(check_cache, target, options, as_json)


@command.command("repair", cls=Command)
@target_argument
@options_of("cache repair")
@json_option
def repair(target: str, options: Options, as_json: bool) -> None:
    """Download damaged and missing files again. Other files stay unchanged."""
    _show(repair_cache, target, options, as_json)


def _show(work: Callable[..., Any], target: str, options: Options, as_json: bool) -> None:
    with keepalive(err, "reading") as change_description:
        report = work(target, options, lambda name: change_description(f"reading {name}"))
    if as_json:
        print_document(report.as_json())
    else:
        out.print(_report(report), crop=False)
    if not report.intact:
        text = "To download the damaged and missing files again, run this command, or merge:"
        stop([text], repair_command(target, options.state_dir))


def _report(report: CacheReport) -> RenderableType:
    """Return a line for each checked file with its state, and the notes."""
    rows = [_row(file) for file in report.files]
    if not rows:
        rows = [Prose("Nothing to check: no model is from the Hub or from a bucket.")]
    return Group(*rows, *(Prose(note) for note in report.notes))


def _row(file: CachedFile) -> Prose:
    model = file.model if is_bucket(file.model) else f"{file.model}@{file.revision[:8]}"
    text = f"{model} {file.file}, {show_size(file.bytes)}"
    return Prose(printable(text), f"{file.state:<8}", _COLOURS[file.state])
