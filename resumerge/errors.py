"""Errors: classes with the facts as fields, and the exit codes of the command line."""

from __future__ import annotations

import errno
import signal
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from resumerge.printable import printable, without_secrets


@dataclass(frozen=True)
class Problem:
    """One problem of the input, described so that the user can solve it.

    Secrets in an address that its texts repeat are left out.

    Args:
        what: one sentence that says what is wrong.
        where: the file or model that has the problem.
        path: the path inside a YAML file, like ``slices[0].sources[1].layer_range``.
        line: the line in that file, counted from 1.
        expected: what would be right.
        found: what is there instead.
        fix: what to do, or what to write instead.
        paste: lines of YAML for a recipe, which `fix` speaks of.
    """

    what: str
    where: str = ""
    path: str = ""
    line: int | None = None
    expected: str = ""
    found: str = ""
    fix: str = ""
    paste: str = ""

    def __post_init__(self) -> None:
        for row in fields(self):
            if isinstance(text := getattr(self, row.name), str):
                object.__setattr__(self, row.name, without_secrets(text))

    def __str__(self) -> str:
        place = self.where + (f", line {self.line}" if self.line is not None else "")
        place += f", at {self.path}" if self.path else ""
        rows = [printable(self.what)]
        for label, text in (
            ("where", place.strip(", ")),
            ("expected", self.expected),
            ("found", self.found),
            ("do", self.fix),
        ):
            if text:
                rows.append(f"  {label + ':':<10}{printable(text)}")
        rows += map(printable, self.paste.splitlines())
        return "\n".join(rows)


class ResumergeError(Exception):
    """The base of every error that the program raises on purpose.

    Attributes:
        exit_code: the exit code of the command line.
        how_to_resume: the Python call that resumes the run; empty if there is none.
    """

    exit_code = 1
    how_to_resume = ""

    @property
    def text(self) -> str:
        """The text for the user: what happened, and what to do."""
        raise NotImplementedError

    def as_json(self) -> dict[str, Any]:
        """Return the error as the command line prints it for programs."""
        return {"kind": "error", "exit_code": self.exit_code, "message": self.text}

    def __str__(self) -> str:
        return f"{self.text}\nTo resume: {self.how_to_resume}" if self.how_to_resume else self.text

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback, which would not help."""
        return str(self).split("\n")


@dataclass
class InputError(ResumergeError):
    """An invalid recipe, source, output or usage. Nothing was written."""

    problems: list[Problem] = field(default_factory=list)
    exit_code = 2

    @property
    def text(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def as_json(self) -> dict[str, Any]:
        problems = [asdict(problem) for problem in self.problems]
        return {"kind": "error", "exit_code": self.exit_code, "problems": problems}


def refuse(
    what: str,
    *,
    where: object = "",
    path: str = "",
    line: int | None = None,
    expected: object = "",
    found: object = "",
    fix: str = "",
) -> InputError:
    """Return an `InputError` with a single problem."""
    return InputError([Problem(what, str(where), path, line, str(expected), str(found), fix)])


class Reason(StrEnum):
    """Why a run, or a task of a cluster, stopped before its end. The texts are part of the JSON."""

    DISK_FULL = "disk_full"
    """A disk has too little space."""

    MEMORY = "memory"
    """There is too little memory to continue."""

    OPEN_FILES = "open_files"
    """This process may open no more files."""

    IO = "io"
    """Reading or writing failed: a disk, or the ledger."""

    NETWORK = "network"
    """The Hub or a bucket that sources are read from does not answer."""

    SOURCE_CHANGED = "source_changed"
    """A file of a source is not what it was when the run was created."""

    SOURCE_UNAVAILABLE = "source_unavailable"
    """A source that could be read when the run was created cannot be read now."""

    SHARD_LOST = "shard_lost"
    """A finished shard is neither in the output nor in the mirror."""

    MIRROR = "mirror"
    """The mirror fails, or has what this run did not write."""

    MIRROR_TAKEN_OVER = "mirror_taken_over"
    """Another machine continues the run in the mirror."""

    METHOD = "method"
    """A merge method of the user's failed."""

    CLUSTER = "cluster"
    """The Ray cluster cannot be used, or has no machine for a task."""

    HASH_CONFLICT = "hash_conflict"
    """Two machines computed different bytes."""

    OOM = "oom"
    """The kernel or Ray killed a worker for its memory, or gave it none."""

    KILLED = "killed"
    """Another process killed the worker."""

    CRASH = "crash"
    """The worker crashed: a fault, like a segmentation fault."""

    WORKER_STALLED = "stall"
    """The worker made no progress, and the supervisor killed it."""

    REFUSED = "refused"
    """A worker, or a machine of the cluster, cannot compute this run as it is."""

    ERROR = "error"
    """A task raised an exception that nothing expects."""

    LOST = "lost"
    """The process or the machine of a task is gone."""

    TASK_SILENT = "stalled"
    """A task has said nothing for too long."""

    UNPUBLISHED = "unpublished"
    """A task says that it is done, and its shard is not where it should be."""

    UNSCHEDULED = "unscheduled"
    """No machine had room for a task: another one would wait as long."""

    ABANDONED = "abandoned"
    """The driver of a task has given it up, or is gone."""


@dataclass
class Resumable(ResumergeError):
    """A stop of the run before its end, after which it can be resumed (exit 75).

    What is committed is kept.

    Args:
        reason: why it stopped.
        message: what happened, and what to do before resuming.
    """

    reason: Reason
    message: str
    exit_code = 75

    def __post_init__(self) -> None:
        self.message = without_secrets(self.message)

    @property
    def text(self) -> str:
        return self.message

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"reason": self.reason}


@dataclass
class DoubtfulNumbers(ResumergeError):
    """The end of a run whose numbers should worry, with ``--strict``; the model is complete.

    Args:
        output: where the model is.
        warnings: what should worry.
        because_of: the option that makes it an error.
    """

    output: str
    warnings: tuple[str, ...]
    because_of: str = "--strict"
    exit_code = 75

    @property
    def text(self) -> str:
        rows = "".join(f"\n- {warning}" for warning in self.warnings)
        return (
            f"The model in {self.output} is complete, and its numbers should worry. That is an "
            f"error because of {self.because_of}:{rows}"
        )

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"warnings": list(self.warnings)}


def unavailable(error: InputError) -> Resumable:
    """Return the error for a run that exists and a model that could be read when it was created.

    Args:
        error: why the model cannot be read now.
    """
    return Resumable(
        Reason.SOURCE_UNAVAILABLE,
        "A model that could be read when the run was created cannot be read now. If it, or a part "
        f"of it, was deleted or moved, put it back, then resume.\n{error}",
    )


@dataclass
class Interrupted(ResumergeError):
    """A stop by a signal; every computed block is committed (exit 128 + signal)."""

    signum: int

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return 128 + self.signum

    @property
    def name(self) -> str:
        """The signal's name."""
        return signal.Signals(self.signum).name

    @property
    def text(self) -> str:
        why = ": the terminal was closed" if self.signum == signal.SIGHUP else ""
        return f"Stopped by {self.name}{why}; finished work is committed"

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"kind": "interrupted", "signal": self.name}


class StoreError(OSError):
    """A failed request to a server or to a mirror. The message is for a person, without secrets.

    Args:
        message: what failed.
        fix: what the user can do about it, if anything.
        retry_after: the seconds that the server asks clients to wait; 0 if it does not say.
        denied: whether the error is permanent: waiting does not help without a change of
            permissions or names. `errno` is then EACCES. Other errors are temporary.
    """

    def __init__(
        self, message: str, *, fix: str = "", retry_after: float = 0.0, denied: bool = False
    ) -> None:
        message = without_secrets(message)
        super().__init__(*([errno.EACCES] if denied else []), message)
        self.message = message
        self.fix = fix
        self.retry_after = retry_after
        self.denied = denied

    def __str__(self) -> str:
        return f"{self.message}: {self.fix}" if self.fix else self.message
