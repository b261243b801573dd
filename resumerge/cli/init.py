"""``resumerge init``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from resumerge.cli.parsing.arguments import LocalPath, argument
from resumerge.cli.parsing.command import Command
from resumerge.documents.new_recipe import Kind, check_is_new, new_recipe_of, write_recipe
from resumerge.errors import refuse
from resumerge.methods import METHODS
from resumerge.planning.check_recipe import find_method
from resumerge.printable import printable, shell_line
from resumerge.ui.terminal.prose import say
from resumerge.ui.terminal.terminal import err, print_command, print_text

NEW_RECIPE = "merge.yaml"


@click.command("init", cls=Command)
@argument(
    "file",
    "[FILE]",
    f"The recipe to write. Default: {NEW_RECIPE}.",
    default=NEW_RECIPE,
    type=LocalPath("recipe"),
)
@click.option(
    "--kind",
    type=click.Choice(Kind, case_sensitive=False),
    default=Kind.MERGE,
    help="A merge; a model with LoRA adapters (--models names them); a mixture of experts; or a "
    "merge in stages.  [default: merge]",
)
@click.option("--method", metavar="METHOD", help="The merge method: see `resumerge methods`.")
@click.option(
    "--models", metavar="MODEL,...", multiple=True, help="Folders or Hub repos: org/name."
)
@click.option("--base", metavar="MODEL", help="The base model, if the method uses one.")
@click.option(
    "--dtype",
    metavar="DTYPE",
    default="bfloat16",
    help="Data type of the output. Default: bfloat16.",
)
def command(
    file: Path,
    kind: Kind,
    method: str | None,
    models: tuple[str, ...],
    base: str | None,
    dtype: str,
) -> None:
    """Write a recipe with comments, from three questions or from options."""
    check_is_new(file)
    model_names = [name for words in models for name in words.split(",") if name]
    if not model_names or (kind is Kind.MERGE and not method):
        method, model_names, base = _ask(kind, method, model_names, base)
    write_recipe(file, new_recipe_of(kind, method, model_names, base, dtype))
    name = str(file)
    print_text(f"Wrote {printable(name)}. To check it, and to merge:", err)
    name = f"./{name}" if name.startswith("-") else name
    print_command(shell_line(["resumerge", "plan", name]))
    print_command(shell_line(["resumerge", "run", name, "merged"]))


def _ask(
    kind: Kind, method: str | None, models: list[str], base: str | None
) -> tuple[str | None, list[str], str | None]:
    """Ask for the method, the models and the base model if they are missing, and return them."""
    if not sys.stdin.isatty():
        raise refuse(
            "There is no terminal to ask for the method and the models",
            expected="--method and --models",
            found="no terminal",
            fix="name them: resumerge init --method ties --models org/a,org/b --base org/base",
        )
    if kind in (Kind.LORA, Kind.MIXTURE):
        base = base or click.prompt("Base model", err=True)
        label = "Adapters" if kind is Kind.LORA else "Models for the experts"
        answer = click.prompt(f"{label}, separated by spaces", err=True)
        return method, answer.replace(",", " ").split(), base
    if method is None:
        say(err, f"{', '.join(METHODS)}. `resumerge methods` says what each does.", "Methods:")
        method = click.prompt("Method", default="linear", err=True)
    chosen_method = find_method(method)
    if base is None and chosen_method.base != "none":
        if chosen_method.base == "required":
            base = click.prompt("Base model", err=True)
        else:
            question = "Base model (empty for none)"
            base = click.prompt(question, default="", show_default=False, err=True) or None
    if not models:
        answer = click.prompt("Models to merge, separated by spaces", err=True)
        models = answer.replace(",", " ").split()
    return method, models, base
