"""What a user may choose about a run."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from resumerge.errors import InputError, Problem

SHARD_SIZE = 5_000_000_000
SEED = 0
MEMORY_WAIT = 600.0
MIRROR_WAIT = 600.0
STALL_SECONDS = 600.0
"""A worker without progress for longer is taken for stuck: a slow disk is quicker than that."""


@dataclass(frozen=True)
class Options:
    """Options of ``run`` and ``resume``; None takes the default, or what the run began with.

    Args:
        state_dir: where ledgers live.
        memory: budget of RSS in bytes.
        threads: worker threads.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``auto``.
        shard_size: largest output shard in bytes.
        seed: of randomized methods.
        offline: touch no network.
        restart: give up the unfinished run and start over.
        memory_wait: seconds that a run waits for memory before it stops, resumable.
        evict: remove downloads of this run as soon as nothing needs them.
        mirror: a folder or ``hf://org/name`` that the run is copied to.
        mirror_then_delete: free a shard here once it is in the mirror.
        mirror_rate: bytes in a second that the mirror may take; no limit by default.
        mirror_wait: seconds that a run waits for a mirror that fails before it stops, resumable.
        take_over: the machine that holds the mirror is known to be dead.
        bring_back: shards that are only in the mirror shall be in the output folder too, and stay.
        output: of a run that is resumed from a mirror on another machine.

    Raises:
        InputError: an option is not of its type, or out of range.
    """

    state_dir: Path | None = None
    memory: int | None = None
    threads: int | None = None
    device: str = "cpu"
    shard_size: int | None = None
    seed: int | None = None
    offline: bool = False
    restart: bool = False
    memory_wait: float = MEMORY_WAIT
    evict: bool = False
    mirror: str | None = None
    mirror_then_delete: bool | None = None
    mirror_rate: int | None = None
    mirror_wait: float | None = None
    take_over: bool = False
    bring_back: bool = False
    output: Path | None = None

    def __post_init__(self) -> None:
        problems = [
            Problem(f"The option {name} cannot be that", expected=expected, found=repr(value))
            for name, value, fits, expected in (
                ("memory", self.memory, _is_count(self.memory), "bytes, above zero, or 2GB"),
                ("threads", self.threads, _is_count(self.threads), "a whole number above zero"),
                ("shard_size", self.shard_size, _is_count(self.shard_size), "bytes, or 5GB"),
                ("seed", self.seed, self.seed is None or _is_whole(self.seed), "a whole number"),
                ("device", self.device, isinstance(self.device, str), "cpu, cuda or auto"),
                ("offline", self.offline, isinstance(self.offline, bool), "True or False"),
                ("memory_wait", self.memory_wait, _is_seconds(self.memory_wait), "seconds"),
                ("evict", self.evict, isinstance(self.evict, bool), "True or False"),
                ("restart", self.restart, isinstance(self.restart, bool), "True or False"),
                ("mirror", self.mirror, _is_text(self.mirror), "a folder, or hf://org/name"),
                (
                    "mirror_then_delete",
                    self.mirror_then_delete,
                    isinstance(self.mirror_then_delete, bool | None),
                    "True or False",
                ),
                ("mirror_rate", self.mirror_rate, _is_count(self.mirror_rate), "bytes, or 10MB"),
                (
                    "mirror_wait",
                    self.mirror_wait,
                    self.mirror_wait is None or _is_seconds(self.mirror_wait),
                    "seconds",
                ),
                ("take_over", self.take_over, isinstance(self.take_over, bool), "True or False"),
                ("bring_back", self.bring_back, isinstance(self.bring_back, bool), "True or False"),
            )
            if not fits
        ]
        if self.bring_back is True and self.mirror_then_delete is True:
            problems.append(
                Problem(
                    "Shards cannot be brought back here and deleted here",
                    found="--bring-back and --mirror-then-delete",
                    fix="leave one of them out",
                )
            )
        if problems:
            raise InputError(problems)


def as_path(path: str | os.PathLike[str], what: str) -> Path:
    """A path that a caller gave; ``~`` is the home folder, as it is in a shell.

    Raises:
        InputError: it is none.
    """
    if isinstance(path, (str, os.PathLike)) and str(path) and "\0" not in str(path):
        with suppress(RuntimeError):  # of a user that is not known: a shell leaves it as it is, too
            return Path(path).expanduser()
        return Path(path)
    problem = Problem(f"The {what} is no path", expected="text, or a Path", found=repr(path))
    raise InputError([problem])


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value) and "\0" not in value)


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and _is_whole(value) and value > 0)


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
