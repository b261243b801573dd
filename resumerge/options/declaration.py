"""The declaration of an option: its type, who takes it, and how long it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from resumerge.options.types import Flag, OptionType


class Kept(Enum):
    """The attempts for which an option holds that was given to one attempt of a run.

    What is kept for later attempts is in the run's ledger (`Options.kept`), but for `REPEATED`.
    """

    NO = "for this attempt"
    """What is wanted once, like ``--restart``. Nothing keeps it."""

    REPEATED = "as long as it is given: the command that resumes the run repeats it"
    """What depends on the machine or the moment, like ``--offline``."""

    INHERITED = "until another value, or the default, is given: it is in the run's ledger"
    """How the run works, like ``--memory``. It changes no byte of the output."""

    BEGUN_WITH = "for all attempts, if the run began with it; else like REPEATED"
    """A flag whose effect on what is done already cannot be ended, like ``--link``."""

    PLANNED = "for all attempts: the run is planned with it"
    """What decides the plan, and so the output's bytes or files, like ``--seed``.

    The ledger has it as the plan has it, not as it was given. So each such option is stored by
    hand (`create_run`) and read back by hand (`pinned_plan`).
    """


@dataclass(frozen=True, kw_only=True)
class Option:
    """The declaration of one option.

    Args:
        type: the type of its value.
        help: one sentence, for the command line and for Python.
        commands: the commands that take it.
        default_text: what help says of the default if that is None.
        kept: how long it holds.
        needs_mirror: whether it is refused if a run has no mirror.
        group: the heading that help lists it under; empty for no special one.
        of_process: whether it only says how a run proceeds: `plan` accepts it without listing it.
        short: its name of one letter on the command line, like ``-u``; empty for none.
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
        """The name that ends a flag that holds on: ``--no-evict``; empty for other options."""
        holds = isinstance(self.type, Flag) and self.kept is Kept.INHERITED
        return self.flag.replace("--", "--no-", 1) if holds else ""

    @property
    def shown_default(self) -> str:
        """The default as help shows it; empty if there is nothing to show."""
        if self.default is None or self.default is False:
            return self.default_text
        return self.type.as_text(self.default)

    def is_valid(self, value: object) -> bool:
        """Return whether the option may have this value.

        None stands for "not given" if that is the default.
        """
        return (value is None and self.default is None) or self.type.is_valid(value)

    def words(self, value: Any) -> list[str]:
        """Return the words of a command line that set the option; none for "not given"."""
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
