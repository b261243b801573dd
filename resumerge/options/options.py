"""The options of a merge, checked, and the rules for keeping and inheriting them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from resumerge.errors import InputError, Problem
from resumerge.options.declaration import Kept, Option
from resumerge.options.fields import SEED, SHARD_SIZE, OptionFields

_PLANNED_DEFAULTS = {"seed": SEED, "shard_size": SHARD_SIZE}
_INHERITED = (Kept.INHERITED, Kept.BEGUN_WITH)


@dataclass(frozen=True, kw_only=True)
class Options(OptionFields):
    """The options of a merge, checked. None means "not given".

    Raises:
        InputError: values are invalid or exclude each other; all of them are listed.
    """

    ended: frozenset[str] = frozenset()
    """Names of options that are set to the word for their default, and so are not inherited."""

    def __post_init__(self) -> None:
        problems = [
            _problem(option, value)
            for option, value in self._values()
            if not option.is_valid(value)
        ]
        if self.bring_back is True and self.mirror_then_delete is True:
            problems.append(
                Problem(
                    "Shards cannot be both kept and deleted on this machine",
                    found="--bring-back and --mirror-then-delete",
                    fix="leave one of them out",
                )
            )
        if self.stream is True and (self.evict is True or self.offline is True):
            excluded_flag = "--offline" if self.offline is True else "--evict"
            problems.append(
                Problem(
                    f"--stream and {excluded_flag} exclude each other",
                    found="both were given",
                    fix="leave one of them out: with --stream nothing is downloaded",
                )
            )
        if self.tensor_union is True and self.tensor_intersection is True:
            problems.append(
                Problem(
                    "Tensors that not all models have cannot be both kept and left out",
                    found="--tensor-union and --tensor-intersection",
                    fix="leave one of them out",
                )
            )
        if problems:
            raise InputError(problems)

    @classmethod
    def read(cls, command: str, given: Mapping[str, Any]) -> Options:
        """Read the options of a Python function from its keyword arguments.

        Args:
            command: the function's name, like ``run``.
            given: the arguments by name; a size may be text like ``"2GB"``.

        Raises:
            InputError: values are invalid; all of them are listed.
            TypeError: the function has no such option.
        """
        declarations = {option.name: option for option in declared(command)}
        values: dict[str, Any] = {}
        problems = []
        for name, value in given.items():
            if name not in declarations:
                similar_names = difflib.get_close_matches(name, declarations, n=1)
                hint = f". Did you mean {similar_names[0]!r}?" if similar_names else ""
                function_name = command.replace("-", "_")
                raise TypeError(
                    f"{function_name}() got an unexpected keyword argument {name!r}{hint}"
                )
            option = declarations[name]
            try:
                values[name] = option.type.read(value)
            except ValueError as error:
                problems.append(_problem(option, value, str(error)))
            except InputError as error:
                problems += error.problems
        try:
            options = cls.of(values)
        except InputError as error:
            raise InputError([*problems, *error.problems]) from None
        if problems:
            raise InputError(problems)
        return options

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Options:
        """Return options with values by name.

        A value may be the word for the option's default, like ``auto``.

        Raises:
            InputError: values are invalid; all of them are listed.
        """
        words = {option.name: option.type.default_word for option in declared()}
        ended_names = {name for name, value in values.items() if value and value == words[name]}
        plain_values = {name: value for name, value in values.items() if name not in ended_names}
        return cls(**plain_values, ended=frozenset(ended_names))

    def kept(self, **planned: Any) -> dict[str, Any]:
        """Return the options that a new run's ledger keeps, as JSON.

        Args:
            planned: values of the options that are `Kept.PLANNED`.
        """
        return planned | {option.name: value for option, value in self._values(*_INHERITED)}

    def kept_after_resume(self, kept_options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that a run's ledger keeps after the run is resumed with these options.

        Args:
            kept_options: the options that the ledger kept before.
        """
        inheritable = {option.name: value for option, value in self._values(Kept.INHERITED)}
        return {**kept_options, **inheritable}

    def inherit(self, kept_options: Mapping[str, Any], mirror: str | None) -> Options:
        """Return a copy of these options with the values that a resumed run inherits.

        An option that is given, or is in `ended`, is not inherited.

        Args:
            kept_options: the options that the run's ledger keeps.
            mirror: the address of the run's mirror; None for a run without a mirror.
        """
        options = replace(self, mirror_then_delete=False) if self.bring_back else self
        inherited_values = {
            option.name: kept_options[option.name]
            for option, value in options._values(*_INHERITED)
            if value == option.default
            and option.name not in self.ended
            and kept_options.get(option.name) is not None
        }
        if options.evict or options.offline:
            inherited_values.pop("stream", None)
        if options.stream:
            inherited_values.pop("evict", None)
        return replace(
            options, mirror=options.mirror or mirror, ended=frozenset(), **inherited_values
        )

    def plans_otherwise(self, kept_options: Mapping[str, Any]) -> bool:
        """Return whether an option of the plan is given with another value than the run's.

        Args:
            kept_options: the options that the run's ledger keeps.
        """
        return any(
            value is not None
            and json.dumps(value, default=str) != json.dumps(kept_options.get(option.name))
            for option, value in self._values(Kept.PLANNED)
        )

    def to_repeat(self, kept_options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, by name, that the command that resumes the run must repeat.

        Args:
            kept_options: the options that the run's ledger keeps.
        """
        values_to_repeat: dict[str, Any] = {}
        for option, value in self._values(Kept.REPEATED, *_INHERITED):
            inherited_value = kept_options.get(option.name) if option.kept in _INHERITED else None
            if option.name in self.ended:
                if inherited_value is not None:
                    values_to_repeat[option.name] = option.type.default_word
            elif value not in (option.default, inherited_value) and (
                value is not False or inherited_value
            ):
                values_to_repeat[option.name] = value
        return values_to_repeat

    def words_to_start_over(self, kept_options: Mapping[str, Any]) -> list[str]:
        """Return the words of a command that starts a new run with the options of this run.

        A new run inherits no options.

        Args:
            kept_options: the options that the run's ledger keeps. An option of the plan that is not
                given here has its value there.
        """
        words = []
        for option, value in self._values(*(set(Kept) - {Kept.NO})):
            if option.kept is Kept.PLANNED and value is None:
                value = kept_options.get(option.name)
            defaults = (option.default, _PLANNED_DEFAULTS.get(option.name))
            if value not in defaults and "run" in option.commands:
                words += option.words(value)
        return words

    def given(self, command: str) -> list[tuple[Option, Any]]:
        """Return (option, value) for each option of a command whose value is not the default."""
        values = ((option, getattr(self, option.name)) for option in declared(command))
        return [(option, value) for option, value in values if value != option.default]

    def needing_mirror(self) -> list[str]:
        """Return the command-line names of the given options that need a mirror."""
        given = ((option, value) for option, value in self._values() if option.needs_mirror)
        return [option.flag for option, value in given if value is not None and value is not False]

    def _values(self, *kept: Kept) -> Iterator[tuple[Option, Any]]:
        for option in declared():
            if not kept or option.kept in kept:
                yield option, getattr(self, option.name)


@cache
def declared(command: str | None = None) -> tuple[Option, ...]:
    """Return the declared options of a command, or all options, in the order of declaration."""
    options = (replace(f.metadata["option"], name=f.name) for f in fields(Options) if f.metadata)
    return tuple(option for option in options if command is None or command in option.commands)


def are_kept_options(values: Mapping[str, Any]) -> bool:
    """Return whether values from a ledger are valid for the options in it (`Options.kept`)."""
    return all(
        values.get(option.name) is None or option.type.is_kept_as(values[option.name])
        for option in declared()
        if option.kept in (Kept.PLANNED, *_INHERITED)
    )


def _problem(option: Option, value: object, why: str = "") -> Problem:
    what = why or f"The value of the option {option.name} is invalid"
    return Problem(what, expected=option.type.expected, found=repr(value))
