"""``resumerge extract-expert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resumerge.cli.merging.merge_command import merge
from resumerge.cli.parsing.arguments import (
    OutputPlace,
    argument,
    json_option,
    options_of,
    process_options,
    progress_option,
)
from resumerge.cli.parsing.command import Command
from resumerge.documents.recipe_file import recipe_of_command
from resumerge.engine.lifecycle.bucket_output import working_folder_of
from resumerge.options import Options
from resumerge.recipe.as_yaml import extraction
from resumerge.ui.progress.styles import Style


@click.command("extract-expert", cls=Command)
@argument("model", "MODEL", "A mixture of experts: a folder, or a repo on the Hub.")
@argument("number", "N", "The number of the expert, from 0.", type=click.IntRange(min=0))
@argument("out", "OUT", "The folder to write the model to.", type=OutputPlace())
@options_of("extract-expert")
@process_options()
@progress_option
@json_option
def command(
    model: str,
    number: int,
    out: Path | str,
    options: Options,
    detach: bool,
    no_supervise: bool,
    progress: Style,
    as_json: bool,
) -> None:
    """Make a dense model from one expert of a mixture, or continue the unfinished run in OUT."""
    destination, options = working_folder_of(out, options)

    def work(session: Any) -> None:
        with recipe_of_command(extraction(model, number), model) as recipe:
            session.run(recipe.path, destination)  # the worker reads the file; the run keeps a copy

    merge(
        options,
        work,
        progress=progress,
        as_json=as_json,
        in_background=detach,
        stall_seconds=None if no_supervise else options.stall_timeout,
    )
