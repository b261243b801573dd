"""The classes of click, with what click lacks: arguments with help, and commands loaded late."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import click

from resumerge.logs import log_verbosely


class Argument(click.Argument):
    """An argument with a help text. click has that since 8.5, which is newer than Colab's."""

    def __init__(self, *words: Any, description: str = "", **more: Any) -> None:
        super().__init__(*words, **more)
        self.description = description


class _Formatter(click.HelpFormatter):
    """A formatter of help that leaves room for the options' meaning on a narrow terminal."""

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        super().write_dl(rows, min(col_max, self.width * 3 // 8), col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """A command that has ``--verbose``, and whose help lists its arguments before its options."""

    context_class = _Context

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        verbose = click.Option(
            ["-v", "--verbose"],
            count=True,
            is_eager=True,
            expose_value=False,
            callback=lambda context, option, times: log_verbosely(times),
            help="Write a log to stderr; -vv writes more.",
        )
        self.params.append(verbose)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [one for one in self.params if isinstance(one, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(one.metavar or "", _described(one)) for one in arguments])
        super().format_options(ctx, formatter)


def _described(argument: Argument) -> str:
    return argument.description + "  [required]" * argument.required


class LazyGroup(click.Group):
    """A group that imports a command when it is needed, and lists commands in the given order.

    Args:
        package: the package of the commands' modules. A module has the command's name, with ``_``
            for ``-``, and the command is its ``command``.
        names: names of the commands.
    """

    def __init__(self, *words: Any, package: str = "", names: Iterable[str] = (), **more: Any):
        super().__init__(*words, **more)
        self._package = package
        self.commands = {name: click.Command(name) for name in names}  # for click's suggestions

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            return None
        module = cmd_name.replace("-", "_")
        command: click.Command = import_module(f"{self._package}.{module}").command
        return command
