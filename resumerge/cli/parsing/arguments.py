"""Decorators for the arguments and options that several commands share.

The options of a merge are made from their declarations in `resumerge.options`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from resumerge.cli.parsing.command import Argument, GroupedOption
from resumerge.engine.lifecycle.bucket_output import read_output
from resumerge.local_path import OUTPUT, local_path
from resumerge.options import Option, Options, declared
from resumerge.options.fields import SAFETY
from resumerge.options.types import (
    Address,
    Choice,
    Count,
    Flag,
    Folder,
    Number,
    OptionType,
    Seconds,
    Word,
    Words,
)
from resumerge.ui.progress.styles import Style

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]


def _read_by(type: OptionType) -> Callable[[str], object]:
    """Return a function that reads an option's text, and turns the type's errors into click's."""

    def read(text: str) -> object:
        try:
            return type.read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def options_of(command: str) -> Decorator[Any]:
    """Return a decorator that adds the declared options of a command.

    The command's function receives all of them as one argument, ``options``.
    """

    def decorate(function: Function) -> Any:
        declarations = declared(command)

        @wraps(function)
        def collected(**given: Any) -> Any:
            option_values = {option.name: given.pop(option.name) for option in declarations}
            return function(options=Options.of(option_values), **given)

        for declaration in reversed(declarations):
            _click_option(declaration, hidden=declaration.of_process and command == "plan")(
                collected
            )
        return collected

    return decorate


def _click_option(option: Option, *, hidden: bool) -> Decorator[Any]:
    flag_argument: dict[str, Any] = (
        {} if option.type.bare is None else {"flag_value": option.type.bare}
    )
    return click.option(
        *filter(None, (option.short, "/".join(filter(None, (option.flag, option.off_flag))))),
        option.name,
        cls=GroupedOption,
        group=option.group,
        hidden=hidden,
        type=_click_type(option.type),
        is_flag=isinstance(option.type, Flag),
        **flag_argument,
        multiple=option.type.repeatable,
        callback=_none_if_empty if option.type.repeatable else None,
        default=option.default,
        metavar=option.type.metavar or None,
        help=option.help + (f"  [default: {option.shown_default}]" if option.shown_default else ""),
    )


def _none_if_empty(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...] | None:
    return values or None


def _click_type(type: OptionType) -> Any:
    if type.reads_text:
        return _read_by(type)
    if isinstance(type, Count):
        return _or_word(type.default_word, click.IntRange(min=1))
    if isinstance(type, Number):
        return click.INT
    if isinstance(type, Seconds):
        return _Seconds(min=0)
    if isinstance(type, Folder):
        return LocalPath(type.what)
    if isinstance(type, Flag):
        return click.BOOL
    assert isinstance(type, Word | Words | Choice | Address), type
    return click.STRING


class _Seconds(click.FloatRange):
    def _describe_range(self) -> str:
        return ""  # help shows SECONDS in place of a range


def _or_word(word: str | None, number: click.IntRange) -> Callable[[str], object]:
    """Return a function that reads a number, or passes on the word for the default."""
    return lambda text: text if text == word else number(text)


class LocalPath(click.Path):
    """A path on this machine.

    Args:
        what: the purpose of the path, in messages.
    """

    def __init__(self, what: str) -> None:
        super().__init__(path_type=Path)
        self._what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = local_path(value, self._what)  # a shell does not expand the ~ of --option=~
        return super().convert(str(path), param, ctx)


class OutputPlace(LocalPath):
    """A path on this machine, or the address of a place in a bucket."""

    def __init__(self) -> None:
        super().__init__(OUTPUT)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if Path(value).suffix in (".yaml", ".yml") and Path(value).is_file():
            self.fail(f"{value} is a recipe: the recipe comes first, then the output.", param, ctx)
        output = read_output(value)
        return output if isinstance(output, str) else super().convert(value, param, ctx)


def argument(name: str, metavar: str, help: str, **more: Any) -> Decorator[Any]:
    """Return a decorator that adds an argument with a help text."""
    return click.argument(name, metavar=metavar, description=help, cls=Argument, **more)


recipe_argument = argument(
    "config", "CONFIG", "A mergekit recipe (YAML).", type=LocalPath("recipe")
)


def run_argument(default: str) -> Decorator[Any]:
    """Return a decorator that adds ``RUN``; `default` describes the default in help."""
    text = f"A run's id, output or mirror (hf://org/name). Default: {default}."
    return argument("run", "[RUN]", text, required=False)


target_argument = argument("target", "CONFIG|REPO", "A recipe, or a Hub repo: org/name[@revision].")


def _enter(context: click.Context, parameter: click.Parameter, folder: Path | None) -> None:
    try:
        if folder is not None:
            os.chdir(folder)
    except OSError as error:
        raise click.BadParameter(f"{folder}: {error.strerror}") from None


chdir_option = click.option(
    "--chdir",
    metavar="DIR",
    type=LocalPath("working folder"),
    callback=_enter,
    is_eager=True,
    expose_value=False,
    help="Work as if started in this folder.",
)


def process_options(*, hidden: bool = False) -> Decorator[Any]:
    """Return a decorator that adds the options about the process of a merge, like ``--detach``.

    Args:
        hidden: whether the options that have no effect on the command are left out of its help.
    """

    def decorate(function: Function) -> Any:
        for add_option in (
            chdir_option,
            click.option(
                "--no-supervise",
                is_flag=True,
                hidden=hidden,
                cls=GroupedOption,
                group=SAFETY,
                help="Run in this process, without a supervisor.",
            ),
            click.option(
                "--detach",
                is_flag=True,
                hidden=hidden,
                cls=GroupedOption,
                group=SAFETY,
                help="Run in the background, even after the terminal closes; `resumerge status "
                "--watch` shows the progress.",
            ),
        ):
            function = add_option(function)
        return function

    return decorate


def progress_option(function: Function) -> Function:
    """Add ``--progress``, and ``--quiet`` for ``--progress none``."""
    for add_option in (
        click.option(
            "-q",
            "--quiet",
            "progress",
            flag_value=Style.NONE,
            type=click.Choice(Style, case_sensitive=False),
            help="Show no progress, like --progress none.",
        ),
        click.option(
            "--progress",
            type=click.Choice(Style, case_sensitive=False),
            default=Style.AUTO,
            help="How progress is shown.  [default: auto]",
        ),
    ):
        function = add_option(function)
    return function


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
tensors_option = click.option(
    "--tensors",
    is_flag=True,
    help="With --json: list every tensor that is not used, and what each output tensor is made of.",
)


def check_tensors(tensors: bool, lists: bool) -> None:
    """Refuse ``--tensors`` if the command prints no list (`lists`)."""
    if tensors and not lists:
        raise click.BadParameter("--tensors needs --json, without --watch or --html")


def json_style(progress: Style, as_json: bool) -> Style:
    """Return the style of progress for the values of ``--progress`` and ``--json``."""
    if as_json and progress not in (Style.AUTO, Style.JSON):
        raise click.BadParameter(f"--json cannot be combined with --progress {progress.value}")
    return Style.JSON if as_json else progress
