"""``resumerge extract-lora``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resumerge.cli.merging.merge_command import merge
from resumerge.cli.parsing.arguments import (
    Decorator,
    OutputPlace,
    json_option,
    options_of,
    process_options,
    progress_option,
)
from resumerge.cli.parsing.command import Command, GroupedOption
from resumerge.documents.recipe_file import recipe_of_command
from resumerge.engine.lifecycle.bucket_output import working_folder_of
from resumerge.options import Options
from resumerge.recipe.as_yaml import adapter_extraction
from resumerge.recipe.types import Extraction
from resumerge.ui.progress.styles import Style

_ADAPTER = "The adapter (mergekit-extract-lora's options)"


def _option(*words: str, **more: Any) -> Decorator[Any]:
    return click.option(*words, cls=GroupedOption, group=_ADAPTER, **more)


@click.command("extract-lora", cls=Command)
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="The model: a folder, a repo on the Hub, or model+adapter.",
)
@click.option(
    "--base-model", required=True, metavar="MODEL", help="The model that it was trained from."
)
@click.option(
    "--out-path",
    "out",
    required=True,
    metavar="OUT",
    type=OutputPlace(),
    help="The folder to write the adapter to.",
)
@_option(
    "--max-rank",
    type=click.IntRange(min=1),
    default=Extraction.max_rank,
    metavar="N",
    help=f"Largest rank of a module.  [default: {Extraction.max_rank}]",
)
@_option(
    "--sv-epsilon",
    type=click.FloatRange(min=0),
    default=Extraction.sv_epsilon,
    metavar="X",
    help="Leave out directions whose singular value is not larger.  [default: 0]",
)
@_option(
    "--energy",
    type=click.FloatRange(min=0, min_open=True, max=1),
    metavar="SHARE",
    help="Choose each rank, up to the largest, so that it keeps this share of the module's change "
    "(sum of squares), as 0.95.",
)
@_option(
    "--distribute-scale/--no-distribute-scale",
    default=Extraction.distribute_scale,
    help="Put the roots of the singular values into both matrices, rather than the singular values "
    "into A.  [default: --distribute-scale]",
)
@_option(
    "--embed-lora/--no-embed-lora",
    default=Extraction.embed_lora,
    help="Decompose embeddings and heads, rather than save them whole.  [default: --no-embed-lora]",
)
@_option(
    "--save-module",
    "save_modules",
    multiple=True,
    metavar="NAME",
    help="Save the modules of this name, or with this last word, whole. Repeatable.",
)
@_option(
    "--include-regex",
    "-i",
    "include",
    multiple=True,
    metavar="REGEX",
    help="Only modules whose names match. May be given several times.",
)
@_option(
    "--exclude-regex",
    "-e",
    "exclude",
    multiple=True,
    metavar="REGEX",
    help="No modules whose names match. May be given several times.",
)
@_option(
    "--skip-undecomposable",
    is_flag=True,
    help="Leave out what is no matrix (norms, biases), rather than save it whole.",
)
@options_of("extract-lora")
@process_options()
@progress_option
@json_option
def command(
    model: str,
    base_model: str,
    out: Path | str,
    options: Options,
    detach: bool,
    no_supervise: bool,
    progress: Style,
    as_json: bool,
    **of_adapter: Any,
) -> None:
    """Make a LoRA adapter of how a model differs from its base, or continue the run in OUT."""
    destination, options = working_folder_of(out, options)

    def work(session: Any) -> None:
        recipe = adapter_extraction(model, base_model, of_adapter)
        with recipe_of_command(recipe, model) as file:
            session.run(file.path, destination)  # the worker reads the file; the run keeps a copy

    merge(
        options,
        work,
        progress=progress,
        as_json=as_json,
        in_background=detach,
        stall_seconds=None if no_supervise else options.stall_timeout,
    )
