"""Every option of a merge: which of them a run's ledger keeps, and a resumed run inherits."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem
from resumerge.local_path import OUTPUT
from resumerge.options.cluster import ClusterAddress, TaskResources
from resumerge.options.declaration import Kept, Option, declare
from resumerge.options.types import (
    Address,
    Choice,
    Count,
    Flag,
    Folder,
    Number,
    Seconds,
    Size,
    Word,
    Words,
)

SHARD_SIZE = 5_000_000_000
SEED = 0
MEMORY_WAIT = 600.0
MIRROR_WAIT = 600.0
STALL_SECONDS = 600.0
"""Seconds without progress after which a worker counts as stuck; even a slow disk is quicker."""


_PLANNED_DEFAULTS = {"seed": SEED, "shard_size": SHARD_SIZE}
_INHERITED = (Kept.INHERITED, Kept.BEGUN_WITH)


_RECIPES = ("run", "plan")
_PLANS = (*_RECIPES, "explain")
_NEW = (*_RECIPES, "extract-expert")
_MERGES = ("run", "resume", "plan")
_SEARCH = "search"
_MIRRORED = (*_MERGES, "extract-expert", "extract-lora")
"""The commands that may merge with a mirror or a cluster."""

_MERGING = (*_MIRRORED, "reproduce")

_READERS = (
    *("status", "verify", "clean", "push", "try", "compare", "explain"),
    *("cache check", "cache repair"),
)

MACHINE = "Memory, processors and disk"
OUTPUT_GROUP = "The output"
STAGES = "Stages (recipes of several documents)"
SOURCES = "Models"
PROOF = "Checks"
SAFETY = "Interruptions"
MIRROR = "Mirror"
CLUSTER = "Cluster"
"""The headings of `Option.group`, in help."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a merge, checked. None means "not given".

    Raises:
        InputError: with every option whose value is not of its type, or out of range.
    """

    state_dir: Path | None = declare(
        Folder("state folder"), "Folder for the ledgers.", *_MERGING, *_READERS,
        _SEARCH, default_text="./state, or RESUMERGE_STATE_DIR",
    )  # fmt: skip
    memory: int | None = declare(
        Size("2GB", "auto"), "Limit for the resident memory of the merge, like 2GB.", *_MERGING,
        _SEARCH,
        default_text="auto: from the available memory", kept=Kept.INHERITED,
        group=MACHINE,
    )  # fmt: skip
    threads: int | None = declare(
        Count(), "Number of worker threads.", *_MERGING, "verify", "compare",
        _SEARCH,
        default_text="auto: the cores that this process may use", kept=Kept.INHERITED,
        group=MACHINE,
    )  # fmt: skip
    device: str = declare(
        Word("cpu, cuda, cuda:1 or auto", "DEV"),
        "Device for dense computation such as SVD: cpu, cuda, cuda:1 or auto.", *_MERGES,
        "verify", "reproduce", _SEARCH, default="cpu", kept=Kept.REPEATED,
        group=MACHINE,
    )  # fmt: skip
    shard_size: int | None = declare(
        Size("5GB"), "Size of the largest output shard.", *_NEW,
        default_text=f"{SHARD_SIZE // 10**9}GB; a copy of one model keeps its files",
        kept=Kept.PLANNED, group=OUTPUT_GROUP,
    )  # fmt: skip
    link: bool = declare(
        Flag(), "Make shards that are copies of a model's files hard links to them, where both are "
        "on one disk: they take no space, and whoever changes one changes the other.",
        *_MERGES, default=False, kept=Kept.BEGUN_WITH, group=OUTPUT_GROUP,
    )  # fmt: skip
    seed: int | None = declare(
        Number(), "Seed for randomized methods; of a search, also for what it tries.", *_RECIPES,
        "extract-lora", "compare", _SEARCH,
        default_text=str(SEED), kept=Kept.PLANNED,
        group=OUTPUT_GROUP,
    )  # fmt: skip
    tensor_union: bool | None = declare(
        Flag(), "Keep tensors that only some of the models have, each merged from the models that "
        "have it (checkpoints without config.json).", *_PLANS, "compare", _SEARCH,
        kept=Kept.PLANNED, short="-u",
        group=OUTPUT_GROUP,
    )  # fmt: skip
    tensor_intersection: bool | None = declare(
        Flag(), "Leave out tensors that not all of the models have (checkpoints without "
        "config.json).", *_PLANS, "compare", _SEARCH, kept=Kept.PLANNED, short="-i",
        group=OUTPUT_GROUP,
    )  # fmt: skip
    keep: Sequence[str] | None = declare(
        Words("names of stages, as a list", "NAME"), "Also write the result of the stage with "
        "this name, to OUT/stages/NAME. May be given several times.", *_RECIPES, kept=Kept.PLANNED,
        group=STAGES,
    )  # fmt: skip
    intermediate_dir: Path | None = declare(
        Folder("folder of the stages"), "Keep the results of all stages, as with --keep, and make "
        "a link DIR/NAME to each.", *_RECIPES, kept=Kept.PLANNED,
        short="-I",
        group=STAGES,
    )  # fmt: skip
    materialize: str | None = declare(
        Choice("auto", "always", "never"), "Which results of stages are written to scratch files "
        "while they are read, rather than computed again: auto, always or never.",
        *_MERGES, default_text="auto: where that is quicker", kept=Kept.INHERITED,
        group=STAGES,
    )  # fmt: skip
    offline: bool = declare(
        Flag(), "Do not use the network: every source must be local or cached.",
        *_MERGING, "verify", "compare", "explain", "cache check", _SEARCH, default=False,
        kept=Kept.REPEATED,
        group=SOURCES,
    )  # fmt: skip
    trust_sources: bool = declare(
        Flag(), "Do not check whether local models changed between attempts. If they did, the "
        "output mixes old and new weights. If a run begins with this option, its inputs are not "
        "hashed.", *_MIRRORED, default=False, kept=Kept.BEGUN_WITH,
        group=SOURCES,
    )  # fmt: skip
    strict: bool | None = declare(
        Flag(), "Refuse a recipe that does not use every tensor of its models (those that "
        "transformers computes or ties, and that an adapter replaces, do not count), and exit with "
        "75 after a merge whose numbers should worry.",
        *_MERGES, kept=Kept.INHERITED,
        group=PROOF,
    )  # fmt: skip
    no_accounts: bool = declare(
        Flag(), "Do not measure what changes: how far each model differs from the base, and what "
        "of a change survives rounding.", *_MERGING, _SEARCH, default=False, kept=Kept.BEGUN_WITH,
        group=PROOF,
    )  # fmt: skip
    no_recheck: bool = declare(
        Flag(), "After an interruption, do not check the data that was committed before it.",
        *_MERGING, default=False, kept=Kept.REPEATED,
        group=SAFETY, of_process=True,
    )  # fmt: skip
    restart: bool = declare(
        Flag(),
        "Abandon the unfinished run and start over.",
        *_MERGING,
        default=False,
        group=SAFETY,
    )
    memory_wait: float = declare(
        Seconds(), "Seconds to wait for free memory before the run stops.", *_MERGING, _SEARCH,
        default=MEMORY_WAIT, kept=Kept.REPEATED,
        group=MACHINE, of_process=True,
    )  # fmt: skip
    evict: bool | None = declare(
        Flag(), "Delete each download of this run as soon as it is no longer needed.",
        *_MERGING, kept=Kept.INHERITED,
        group=SOURCES,
    )  # fmt: skip
    stream: bool | None = declare(
        Flag(), "Read models on the Hub and in buckets by ranges as they are needed, and never "
        "store them. What a method reads several times is fetched several times.",
        *_MERGING, _SEARCH, kept=Kept.INHERITED,
        group=SOURCES,
    )  # fmt: skip
    mirror: str | None = declare(
        Address(),
        "Copy the run to this folder, Hub repo (hf://org/name) or bucket (s3://bucket/prefix) "
        "while it works.", *_MIRRORED, kept=Kept.REPEATED,
        group=MIRROR,
    )  # fmt: skip
    mirror_then_delete: bool | None = declare(
        Flag(), "Delete each shard on this machine once the mirror has it.", *_MIRRORED,
        kept=Kept.INHERITED, needs_mirror=True,
        group=MIRROR,
    )  # fmt: skip
    mirror_rate: int | None = declare(
        Size("10MB", "none"), "Limit for transfers to and from the mirror in bytes per second, "
        "like 10MB.", *_MIRRORED,
        default_text="none", kept=Kept.INHERITED, needs_mirror=True,
        group=MIRROR,
    )  # fmt: skip
    mirror_wait: float | None = declare(
        Seconds(), "Seconds to retry a failing mirror before the run stops.", *_MIRRORED,
        default_text=f"{MIRROR_WAIT:g}", kept=Kept.INHERITED, needs_mirror=True,
        group=MIRROR, of_process=True,
    )  # fmt: skip
    take_over: bool = declare(
        Flag(), "Take over the mirror from another machine that is known to be dead.",
        *_MIRRORED, default=False, kept=Kept.REPEATED, needs_mirror=True,
        group=MIRROR,
    )  # fmt: skip
    bring_back: bool = declare(
        Flag(), "Download shards that only the mirror has, and keep them here.", *_MIRRORED,
        default=False, kept=Kept.REPEATED, needs_mirror=True,
        group=MIRROR,
    )  # fmt: skip
    ray: str | None = declare(
        ClusterAddress(), "Compute the shards on a Ray cluster, by tasks that write to OUT: a "
        "folder that all machines share, or a place in a bucket. Without an address a cluster is "
        "started on this machine alone.",
        *_MIRRORED, kept=Kept.REPEATED,
        group=CLUSTER,
    )  # fmt: skip
    ray_resources: str | None = declare(
        TaskResources(), "What Ray reserves for each task beside --threads and --memory: NAME=N, "
        "separated by commas, or JSON.", *_MIRRORED, kept=Kept.REPEATED,
        group=CLUSTER,
    )  # fmt: skip
    stall_timeout: float = declare(
        Seconds(), "Seconds without progress after which the worker, or a task of --ray, is "
        "started again; 0: never.", *_MERGING, default=STALL_SECONDS, kept=Kept.REPEATED,
        group=SAFETY, of_process=True,
    )  # fmt: skip
    output: Path | None = declare(
        Folder(OUTPUT), "Output of a run that is resumed from a mirror.", "resume",
        default_text="./NAME",
        group=OUTPUT_GROUP,
    )  # fmt: skip
    ended: frozenset[str] = frozenset()
    """Names of options that were given the word for their default: they are not inherited."""

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
            other = "--offline" if self.offline is True else "--evict"
            problems.append(
                Problem(
                    f"--stream and {other} exclude each other",
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
        """Read the options of a Python function from what its caller gave.

        Args:
            command: the function's name, like ``run``.
            given: values by name; a size may be text like ``"2GB"``.

        Raises:
            InputError: values are invalid; all of them are listed.
            TypeError: the function has no such option.
        """
        declarations = {option.name: option for option in declared(command)}
        read: dict[str, Any] = {}
        problems = []
        for name, value in given.items():
            if name not in declarations:
                near = difflib.get_close_matches(name, declarations, n=1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                called = command.replace("-", "_")
                raise TypeError(f"{called}() got an unexpected keyword argument {name!r}{hint}")
            option = declarations[name]
            try:
                read[name] = option.type.read(value)
            except ValueError as error:
                problems.append(_problem(option, value, str(error)))
            except InputError as error:
                problems += error.problems
        try:
            options = cls.of(read)
        except InputError as error:
            raise InputError([*problems, *error.problems]) from None
        if problems:
            raise InputError(problems)
        return options

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Options:
        """Build options by name; a value may be the word for the option's default, like ``auto``.

        Raises:
            InputError: values are invalid; all of them are listed.
        """
        words = {option.name: option.type.default_word for option in declared()}
        ended = {name for name, value in values.items() if value and value == words[name]}
        others = {name: value for name, value in values.items() if name not in ended}
        return cls(**others, ended=frozenset(ended))

    def kept(self, **planned: Any) -> dict[str, Any]:
        """Return the options that a new run's ledger keeps, as JSON.

        Args:
            planned: values of the options that are `Kept.PLANNED`.
        """
        return planned | {option.name: value for option, value in self._values(*_INHERITED)}

    def kept_from_now(self, began: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that a run's ledger keeps after it is resumed with these.

        Args:
            began: the options that it has kept until now.
        """
        now = {option.name: value for option, value in self._values(Kept.INHERITED)}
        return {**began, **now}

    def inherit(self, began: Mapping[str, Any], mirror: str | None) -> Options:
        """Return these options, completed by those that the run's ledger keeps.

        An option that is given, or `ended`, is not inherited.

        Args:
            began: the options that the run's ledger keeps.
            mirror: the address of the run's mirror, if it has one.
        """
        now = replace(self, mirror_then_delete=False) if self.bring_back else self
        inherited = {
            option.name: began[option.name]
            for option, value in now._values(*_INHERITED)
            if value == option.default
            and option.name not in self.ended
            and began.get(option.name) is not None
        }
        if now.evict or now.offline:
            inherited.pop("stream", None)
        if now.stream:
            inherited.pop("evict", None)
        return replace(now, mirror=now.mirror or mirror, ended=frozenset(), **inherited)

    def plans_otherwise(self, began: Mapping[str, Any]) -> bool:
        """Return whether an option that a run is planned with is given, and is not the run's.

        Args:
            began: the options that the run's ledger keeps.
        """
        return any(
            value is not None
            and json.dumps(value, default=str) != json.dumps(began.get(option.name))
            for option, value in self._values(Kept.PLANNED)
        )

    def given_again(self, began: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that must be given again when the run is resumed, by name.

        Args:
            began: the options that the run's ledger keeps.
        """
        again: dict[str, Any] = {}
        for option, value in self._values(Kept.REPEATED, *_INHERITED):
            known = began.get(option.name) if option.kept in _INHERITED else None
            if option.name in self.ended:
                if known is not None:
                    again[option.name] = option.type.default_word
            elif value not in (option.default, known) and (value is not False or known):
                again[option.name] = value
        return again

    def words_to_start_over(self, began: Mapping[str, Any]) -> list[str]:
        """Return the words that give a new run the options of the present one.

        A new run inherits nothing.

        Args:
            began: the options that the run's ledger keeps. They say what the run is planned with,
                if these options do not.
        """
        words = []
        for option, value in self._values(*(set(Kept) - {Kept.NO})):
            if option.kept is Kept.PLANNED and value is None:
                value = began.get(option.name)
            defaults = (option.default, _PLANNED_DEFAULTS.get(option.name))
            if value not in defaults and "run" in option.commands:
                words += option.words(value)
        return words

    def given(self, command: str) -> list[tuple[Option, Any]]:
        """Return the options of a command whose values are not the defaults, and the values."""
        values = ((option, getattr(self, option.name)) for option in declared(command))
        return [(option, value) for option, value in values if value != option.default]

    def needing_mirror(self) -> list[str]:
        """Return the given options that need a mirror, as the command line names them."""
        given = ((option, value) for option, value in self._values() if option.needs_mirror)
        return [option.flag for option, value in given if value is not None and value is not False]

    def _values(self, *kept: Kept) -> Iterator[tuple[Option, Any]]:
        for option in declared():
            if not kept or option.kept in kept:
                yield option, getattr(self, option.name)


@cache
def declared(command: str | None = None) -> tuple[Option, ...]:
    """Return the declared options in their order: all options, or the options of a command."""
    options = (replace(f.metadata["option"], name=f.name) for f in fields(Options) if f.metadata)
    return tuple(option for option in options if command is None or command in option.commands)


def are_kept_options(values: Mapping[str, Any]) -> bool:
    """Return whether a ledger may hold these values as a run's options: see `Options.kept`."""
    return all(
        values.get(option.name) is None or option.type.is_kept_as(values[option.name])
        for option in declared()
        if option.kept in (Kept.PLANNED, *_INHERITED)
    )


def _problem(option: Option, value: object, why: str = "") -> Problem:
    what = why or f"The value of the option {option.name} is invalid"
    return Problem(what, expected=option.type.expected, found=repr(value))
