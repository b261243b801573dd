"""``resumerge run``."""

from __future__ import annotations

from pathlib import Path

import click

from resumerge.cli.merging.merge_command import merge
from resumerge.cli.parsing.arguments import (
    OutputPlace,
    argument,
    json_option,
    options_of,
    process_options,
    progress_option,
    recipe_argument,
)
from resumerge.cli.parsing.command import Command
from resumerge.engine.lifecycle.bucket_output import working_folder_of
from resumerge.options import Options
from resumerge.ui.progress.styles import Style


@click.command(
    "run",
    cls=Command,
    exit_codes=True,
    examples=(
        "resumerge run merge.yaml merged",
        "resumerge run merge.yaml merged --memory 2GB --mirror hf://org/merged",
    ),
)
@recipe_argument
@argument(
    "out",
    "OUT",
    "The folder to write the model to, or s3://bucket/prefix; for models that are single files, "
    "also NAME.safetensors; or NAME.gguf, a model for llama.cpp.",
    type=OutputPlace(),
)
@options_of("run")
@process_options()
@progress_option
@json_option
def command(
    config: Path,
    out: Path | str,
    options: Options,
    detach: bool,
    no_supervise: bool,
    progress: Style,
    as_json: bool,
) -> None:
    """Merge, or continue the unfinished run in OUT. Its recipe must be the same."""
    folder, options = working_folder_of(out, options)
    merge(
        options,
        lambda session: session.run(config, folder),
        progress=progress,
        as_json=as_json,
        in_background=detach,
        stall_seconds=None if no_supervise else options.stall_timeout,
    )
