"""The entry point, and the list of commands."""

from __future__ import annotations

import sys

import click

import resumerge
from resumerge.cli.parsing.command import LazyGroup
from resumerge.cli.parsing.mergekit_options import without_mergekit_options
from resumerge.engine.resources.resource_errors import DISK_ERRORS, as_resumable
from resumerge.errors import InputError, Problem, ResumergeError
from resumerge.logs import set_up_logging
from resumerge.printable import without_secrets
from resumerge.ui.terminal.console import escape_unknown_letters, print_json_line, silence
from resumerge.ui.terminal.prose import say
from resumerge.ui.terminal.streams import lossy, occupy_closed_streams
from resumerge.ui.terminal.terminal import err, print_text

COMMANDS = {
    "init": "Write a recipe with comments, from three questions or from options.",
    "plan": "Check a merge and estimate its cost.",
    "explain": "Show what each parameter of a recipe comes to, layer by layer.",
    "run": "Merge, or continue the unfinished run in OUT.",
    "resume": "Continue an interrupted run, or a search.",
    "status": "Show progress, attempts, memory and events of one run, the trials of a "
    "search, or all.",
    "verify": "Check an output, finished or not, against its checksums.",
    "reproduce": "Make a model again from its card, with its models as they were, and compare the "
    "two.",
    "search": "Search for the values of a recipe that an evaluation likes best.",
    "compare": "Compare models: configs, tokenizers, and every tensor, read by ranges.",
    "try": "Load a finished model on the CPU, and have it continue a prompt.",
    "push": "Upload a finished model to the Hub.",
    "extract-expert": "Make a dense model from one expert of a mixture, or continue the unfinished "
    "run in OUT.",
    "extract-lora": "Make a LoRA adapter of how a model differs from its base, or continue the run "
    "in OUT.",
    "clean": "Remove the ledgers of old runs and the files of unfinished ones.",
    "ui": "Serve a page to merge from, in a browser.",
    "methods": "List the merge methods, their parameters and defaults.",
    "demo": "Show a merge that is killed and resumed.",
    "cache": "Check and repair cached sources.",
}
"""The commands in the order of the help, each with the first sentence of its own help text.

The sentences are repeated here so that the list of commands needs no import of their modules.
"""

INTERRUPTED = 130


def _show_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"resumerge {resumerge.__version__}")
        context.exit()


@click.group(
    "resumerge",
    cls=LazyGroup,
    package="resumerge.cli",
    summaries=COMMANDS,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def app() -> None:
    """Merge model weights on machines that may disappear at any moment."""


def main() -> None:
    """Run the command of the process's command line, and exit with its exit code.

    A `ResumergeError` is printed on stderr, and its class decides the exit code.
    """
    occupy_closed_streams()
    escape_unknown_letters(sys.stdout)
    sys.stderr = lossy(sys.stderr)
    try:
        code = _exit_code(sys.argv[1:] or ["--help"])
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            silence(sys.stdout)
    sys.exit(code)


def _exit_code(words: list[str]) -> int:
    try:
        set_up_logging()
        words, notes = without_mergekit_options(words)
        if words[0] == "help":
            words = [*words[1:], "--help"]
        for note in notes:
            say(err, note, "note:", "yellow")
        return app.main(words, standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            print_text(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help'.\n", err)
        message = _message(error)
        say(err, without_secrets(message), "Error:")
        return _tell(InputError([Problem(message, where=" ".join(words))]), words)
    except click.Abort:
        print_text("\nStopped.", err)
        return INTERRUPTED
    except ResumergeError as error:
        print_text(str(error), err)
        return _tell(error, words)
    except DISK_ERRORS as error:
        stop_error = as_resumable(error)
        print_text(str(stop_error), err)
        return _tell(stop_error, words)


def _message(error: click.ClickException) -> str:
    """Return click's message for a wrong command line, with advice for a word of recipes."""
    if isinstance(error, click.NoSuchOption):
        from resumerge.cli.parsing.recipe_words import place_in_recipe

        if place_text := place_in_recipe(error.option_name):
            return f"No such option '{error.option_name}': {place_text}"
    return error.format_message()


def _tell(error: ResumergeError, words: list[str]) -> int:
    """Print an error as JSON if ``--json`` is given, and return its exit code.

    The words are searched for ``--json``, since the parsing of the command line may have failed.
    """
    if "--json" in words or "--progress=json" in words:
        print_json_line(sys.stdout, **error.as_json())
    return error.exit_code


if __name__ == "__main__":
    main()
