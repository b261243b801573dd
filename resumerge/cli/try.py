"""``resumerge try``."""

from __future__ import annotations

from pathlib import Path

import click
from click.exceptions import Exit

from resumerge.cli.parsing.arguments import LocalPath, argument, json_option, options_of
from resumerge.cli.parsing.command import Command
from resumerge.documents.try_model import TOKENS, try_model
from resumerge.errors import InputError
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.ui.progress.keepalive import keepalive
from resumerge.ui.terminal.terminal import err, out, print_document
from resumerge.ui.terminal.try_result import show_try_result


@click.command("try", cls=Command)
@argument("model", "OUT", "The folder of a finished model.", type=LocalPath("model"))
@argument("prompt", "PROMPT", "A text that the model is to continue.")
@options_of("try")
@click.option(
    "--text",
    type=LocalPath("text"),
    metavar="FILE",
    help="Measure how well the model and its sources predict this text.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    metavar="N",
    default=TOKENS,
    help=f"Tokens to generate.  [default: {TOKENS}]",
)
@json_option
def command(
    model: Path, prompt: str, options: Options, text: Path | None, tokens: int, as_json: bool
) -> None:
    """Load a finished model on the CPU, and have it continue a prompt.

    Exits with 2 if its logits are not finite, or if it lacks tensors.
    """
    with keepalive(err, "loading transformers") as change_description:
        result = try_model(
            model, prompt, RunStore(options.state_dir), text, tokens, change_description
        )
    if as_json:
        print_document(result.as_json())
    else:
        out.print(show_try_result(result), crop=False, soft_wrap=not out.is_terminal)
    if not result.sound:
        raise Exit(InputError.exit_code)
