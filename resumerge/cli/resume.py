"""``resumerge resume``."""

from __future__ import annotations

from pathlib import Path

import click

from resumerge.cli.merging.merge_command import merge
from resumerge.cli.parsing.arguments import (
    json_option,
    options_of,
    process_options,
    progress_option,
    run_argument,
)
from resumerge.cli.parsing.command import Command
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation.state import describe_search, find_search
from resumerge.options import Options, declared
from resumerge.ui.progress.styles import Style


@click.command(
    "resume",
    cls=Command,
    exit_codes=True,
    examples=("resumerge resume", "resumerge resume hf://org/merged", "resumerge resume found"),
)
@run_argument("the newest run")
@options_of("resume")
@process_options()
@progress_option
@json_option
def command(
    run: str | None,
    options: Options,
    detach: bool,
    no_supervise: bool,
    progress: Style,
    as_json: bool,
) -> None:
    """Continue an interrupted run, or a search. A run may be on this machine or in a mirror."""
    if (search_folder := find_search(RunStore(options.state_dir), run)) is not None:
        if detach or no_supervise or progress not in (Style.AUTO, Style.JSON):
            raise click.UsageError(
                "a search is resumed without --detach, --no-supervise and --progress"
            )
        _resume_search(search_folder, options, as_json=as_json)
        return
    merge(
        options,
        lambda session: session.resume(run),
        progress=progress,
        as_json=as_json,
        in_background=detach,
        stall_seconds=None if no_supervise else options.stall_timeout,
    )


def _resume_search(folder: Path, options: Options, *, as_json: bool) -> None:
    """Repeat the command of a search, with the present options after it, which override its own."""
    from resumerge.cli import search

    accepted_names = {option.name for option in declared("search")}
    option_words: list[str] = []
    for option, value in options.given("resume"):
        words = option.words(value)
        if option.name not in accepted_names:
            raise click.UsageError(f"a search is resumed without {words[0]}")
        option_words += words if option.name != "state_dir" else []
    _, *command = describe_search(folder)["command"]
    search.command.main([*command, *option_words, *["--json"] * as_json], standalone_mode=False)
