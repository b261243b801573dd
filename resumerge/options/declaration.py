"""The declaration of an option: its type, the commands that accept it, and how long it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from resumerge.options.types import Flag, OptionType


class Kept(Enum):
    """How long the value of an option holds after it was given to one attempt of a run.

    The run's ledger keeps the options that later attempts inherit (`Options.kept`).
    """

    NO = "for this attempt"
    """An action of one attempt, like ``--restart``. Its value is not kept."""

    REPEATED = "as long as it is given: the command that resumes the run repeats it"
    """A setting that depends on the machine or the moment, like ``--offline``."""

    INHERITED = "until another value, or the default, is given: it is in the run's ledger"
    """A setting of the work, like ``--memory``, that does not change the output's bytes."""

    BEGUN_WITH = "for all attempts, if the run began with it; else like REPEATED"
    """A flag whose effect on finished work cannot be undone, like ``--link``."""

    PLANNED = "for all attempts: the run is planned with it"
    """A setting that decides the plan, and so the output's bytes or files, like ``--seed``.

    The ledger keeps the value of the plan, which may differ from the value that was given. So
    `create_run` stores each of these options explicitly, and `PlanningOptions` reads them back.
    """


@dataclass(frozen=True, kw_only=True)
class Option:
    """The declaration of one option.

    Args:
        type: the object that reads a value from text, checks it and writes it again.
        help: one sentence, for the command line and for Python.
        commands: the commands that accept the option.
        default_text: the text for the default in help, if the default is None.
        kept: how long the option holds.
        needs_mirror: whether the option is refused if a run has no mirror.
        group: the heading in help under which the option is listed; empty for the general list.
        of_process: whether the option only affects how a run proceeds. `plan` accepts such an
            option, and does not list it in its help.
        short: the option's one-letter name on the command line, like ``-u``; empty for none.
        name: the field's name; filled in by `declared`.
        default: the field's default; filled in by `declared`.
    """

    type: OptionType
    help: str
    commands: tuple[str, ...]
    default_text: str = ""
    kept: Kept = Kept.NO
    needs_mirror: bool = False
    group: str = ""
    of_process: bool = False
    short: str = ""
    name: str = ""
    default: Any = None

    @property
    def flag(self) -> str:
        """The option's name on the command line: ``--mirror-wait``."""
        return "--" + self.name.replace("_", "-")

    @property
    def off_flag(self) -> str:
        """The name that turns an inherited flag off, like ``--no-evict``; else empty."""
        holds = isinstance(self.type, Flag) and self.kept is Kept.INHERITED
        return self.flag.replace("--", "--no-", 1) if holds else ""

    @property
    def shown_default(self) -> str:
        """The default as help shows it; empty if help shows no default."""
        if self.default is None or self.default is False:
            return self.default_text
        return self.type.as_text(self.default)

    def is_valid(self, value: object) -> bool:
        """Return whether a value is valid for the option.

        If the default is None, None is valid and means "not given".
        """
        return (value is None and self.default is None) or self.type.is_valid(value)

    def words(self, value: Any) -> list[str]:
        """Return the words of a command line that set the option; empty for "not given"."""
        if value is None:
            return []
        if value is False:
            return [self.off_flag] if self.off_flag else []
        if self.type.repeatable:
            return [word for text in value for word in (self.flag, text)]
        return [self.flag] if value is True else [self.flag, self.type.as_text(value)]


def declare(
    type: OptionType, help: str, *, commands: tuple[str, ...], default: Any = None, **more: Any
) -> Any:
    """Declare an option, as a field of `OptionFields`."""
    declaration = Option(type=type, help=help, commands=commands, default=default, **more)
    return field(default=default, metadata={"option": declaration})
