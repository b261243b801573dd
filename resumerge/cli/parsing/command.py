"""Subclasses of click's classes: arguments with help texts, groups of options, lazy loading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from resumerge.logs import log_verbosely

EXIT_CODES = (
    ("0", "done"),
    ("2", "the usage, the recipe, a source or the output is invalid; nothing was written"),
    ("75", "stopped, and can be resumed: memory, full disk, network"),
    ("130, 143, 129", "stopped by Ctrl-C, SIGTERM, or the terminal's end; can be resumed"),
    ("1", "a bug"),
)


class Argument(click.Argument):
    """An argument with a help text. click itself has that since 8.5; Colab has an older click."""

    def __init__(self, *words: Any, description: str = "", **more: Any) -> None:
        super().__init__(*words, **more)
        self.description = description


class GroupedOption(click.Option):
    """An option that help lists under a heading of its own."""

    def __init__(self, *words: Any, group: str = "", **more: Any) -> None:
        super().__init__(*words, **more)
        self.group = group


class _Formatter(click.HelpFormatter):
    """A formatter of help that keeps room for the descriptions of options on a narrow terminal."""

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        super().write_dl(rows, min(col_max, self.width * 3 // 8), col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """A command that has ``--verbose``, and whose help has sections.

    Args:
        examples: command lines for the section of examples in help.
        exit_codes: whether help explains the exit codes.
    """

    context_class = _Context

    def __init__(
        self, *words: Any, examples: Sequence[str] = (), exit_codes: bool = False, **more: Any
    ) -> None:
        super().__init__(*words, **more)
        self._examples, self._exit_codes = examples, exit_codes
        verbose_option = click.Option(
            ["-v", "--verbose"],
            count=True,
            is_eager=True,
            expose_value=False,
            callback=lambda context, option, times: log_verbosely(times),
            help="Write a log to stderr; -vv writes more.",
        )
        self.params.append(verbose_option)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [parameter for parameter in self.params if isinstance(parameter, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(
                    [(parameter.metavar or "", _described(parameter)) for parameter in arguments]
                )
        records_by_heading: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, Argument) else parameter.get_help_record(ctx)
            if record is not None:
                records_by_heading.setdefault(getattr(parameter, "group", ""), []).append(record)
        other_options = records_by_heading.pop("", [])
        for heading, records in records_by_heading.items():
            with formatter.section(heading):
                formatter.write_dl(records)
        with formatter.section("Other options" if records_by_heading else "Options"):
            formatter.write_dl(other_options)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {example}\n" for example in self._examples))
        if self._exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl(EXIT_CODES)
            formatter.write_paragraph()
            formatter.write_text("More: docs/commands.md; of mirrors: docs/mirrors.md")


def _described(argument: Argument) -> str:
    return argument.description + "  [required]" * argument.required


class LazyGroup(click.Group):
    """A group that imports a command when it is needed, and lists commands in the given order.

    Args:
        package: the package of the commands' modules. The module of a command has its name, with
            ``_`` for ``-``, and defines it as ``command``.
        summaries: the description of each command for the help's list, by name.
    """

    def __init__(
        self,
        *words: Any,
        package: str = "",
        summaries: Mapping[str, str] | None = None,
        **more: Any,
    ):
        super().__init__(*words, **more)
        self._package, self._summaries = package, summaries or {}
        self.commands = {name: click.Command(name) for name in self._summaries}  # for suggestions

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with whole summaries; click would cut them to one line each."""
        with formatter.section("Commands"):
            formatter.write_dl([*self._summaries.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            return None
        module = cmd_name.replace("-", "_")
        command: click.Command = import_module(f"{self._package}.{module}").command
        return command
