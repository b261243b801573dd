"""Functions as commands of the command line: their annotated parameters are its arguments.

    @app.command()
    def plan(config: Annotated[Path, Argument(metavar="CONFIG", help="A recipe.")]) -> None: ...

That is how typer has it; this is the part of it that is used here, made of click like typer. typer
itself imports pydantic, and was a third of what `resumerge status` took.
"""

from __future__ import annotations

import difflib
import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import click
from click import BadParameter, Context
from click.exceptions import Exit

__all__ = ["Argument", "BadParameter", "Commands", "Context", "Exit", "Option"]

INTERRUPTED = 130
Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Argument:
    """A word that is told by its place.

    Args:
        metavar: what to call it; the parameter's name by default.
        help: what it is for.
    """

    metavar: str | None = None
    help: str = ""


class Option:
    """A word that is told by its name.

    Args:
        names: the parameter's by default, with dashes.
        help: what it is for.
        metavar: what to call its value.
        parser: reads the value; raises `BadParameter`.
        min: the smallest value that a number may have.
        callback: is given the value, and returns what to take for it.
        is_eager: it is read before the others.
    """

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str | None = None,
        parser: Callable[[str], Any] | None = None,
        min: float | None = None,
        callback: Callable[[Any], Any] | None = None,
        is_eager: bool = False,
    ) -> None:
        self.names, self.help, self.metavar, self.parser = names, help, metavar, parser
        self.min, self.callback, self.is_eager = min, callback, is_eager


class Commands(click.Group):
    """Commands by name, and groups of them.

    Args:
        name: of the program, or of the group.
        help: one line.
    """

    def __init__(self, name: str, help: str) -> None:
        super().__init__(name, help=help, no_args_is_help=True)
        self._functions: dict[str, Callable[..., None]] = {}

    def function(self, name: str | None = None) -> Callable[[Function], Function]:
        """Make a function a command.

        Args:
            name: the function's by default.
        """

        def add(function: Function) -> Function:
            self._functions[name or function.__name__] = function
            return function

        return add

    def first(self) -> Callable[[Function], Function]:
        """Have a function called before any command, with the options that stand before it."""

        def add(function: Function) -> Function:
            self.callback, self.params = function, _parameters(function)
            self.invoke_without_command = True
            return function

        return add

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        return [*self._functions, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The parameters of a command are looked at when it is asked for."""
        function = self._functions.get(cmd_name)
        return super().get_command(ctx, cmd_name) if function is None else _command(function)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            close = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            near = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {name!r}.{near}")
        return super().resolve_command(ctx, args)


class _Command(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Arguments first, each with what it is for."""
        records = [(p.make_metavar(ctx), p) for p in self.params if isinstance(p, _Argument)]
        if records:
            with formatter.section("Arguments"):
                formatter.write_dl([(name, p.described()) for name, p in records])
        super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED) from None


class _Argument(click.Argument):
    """With what it is for."""

    told = ""

    def make_metavar(self, ctx: click.Context | None = None) -> str:
        name = self.metavar or self.human_readable_name.upper()
        return name if self.required or name.startswith("[") else f"[{name}]"

    def described(self) -> str:
        return f"{self.told}  [required]".lstrip() if self.required else self.told


class _OneOf(click.Choice):
    """A member of an enumeration, by its value."""

    def __init__(self, members: type[enum.Enum]) -> None:
        super().__init__([member.value for member in members])
        self._members = members

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, self._members):
            return value
        return self._members(super().convert(value, param, ctx))


def _command(function: Callable[..., None]) -> _Command:
    return _Command(
        function.__name__,
        callback=_with_context(function),
        params=_parameters(function),
        help=inspect.getdoc(function),
    )


def _parameters(function: Callable[..., None]) -> list[click.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return [
        _parameter(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if hints[name] is not Context
    ]


def _with_context(function: Callable[..., None]) -> Callable[..., None]:
    """A first parameter that is a `Context` is given the one that click has."""
    hints = get_type_hints(function)
    return click.pass_context(function) if Context in hints.values() else function


def _parameter(name: str, hint: Any, default: Any) -> click.Parameter:
    kind, given = get_args(hint)
    kinds = [one for one in get_args(kind) if one is not type(None)]
    kind = kinds[0] if kinds else kind
    if isinstance(given, Argument):
        needed = default is inspect.Parameter.empty
        otherwise = {} if needed else {"default": default}
        found = _Argument(
            [name],
            type=_type(kind, None, None),
            required=needed,
            metavar=given.metavar,
            **otherwise,
        )
        found.told = given.help
        return found
    return click.Option(
        [name, *(given.names or ("--" + name.replace("_", "-"),))],
        type=_type(kind, given.parser, given.min),
        is_flag=kind is bool,
        default=default,
        show_default=_shown(default),
        help=given.help,
        metavar=given.metavar,
        is_eager=given.is_eager,
        callback=_called(given.callback),
    )


def _shown(default: Any) -> bool | str:
    """What help says of a default."""
    if isinstance(default, enum.Enum):
        return str(default.value)
    return default is not None and not isinstance(default, bool)


def _called(callback: Callable[[Any], Any] | None) -> Any:
    return None if callback is None else lambda ctx, parameter, value: callback(value)


def _type(kind: type[Any], parser: Callable[[str], Any] | None, low: float | None) -> Any:
    if parser is not None:
        return parser
    if issubclass(kind, enum.Enum):
        return _OneOf(kind)
    if kind is Path:
        return click.Path(path_type=Path)
    if low is not None:
        return click.IntRange(min=int(low)) if kind is int else click.FloatRange(min=low)
    return kind
