"""The program's errors: classes with the facts as fields, and the exit codes of commands."""

from __future__ import annotations

import errno
import signal
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from resumerge.printable import printable, without_secrets


@dataclass(frozen=True)
class Problem:
    """One problem of the input, with the facts that the user needs to solve it.

    Secrets in addresses are removed from all texts.

    Args:
        what: the problem in one sentence.
        where: the file, model or place that has the problem.
        path: the path inside a YAML file, like ``slices[0].sources[1].layer_range``.
        line: the line in the YAML file, counted from 1; None without a line.
        expected: the expected value or state.
        found: the actual value or state.
        fix: the next step for the user, or the text to write instead.
        paste: lines of YAML to copy into a recipe, to which `fix` refers.
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
        for text_field in fields(self):
            if isinstance(text := getattr(self, text_field.name), str):
                object.__setattr__(self, text_field.name, without_secrets(text))

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
    """The base class of every error that the program raises on purpose.

    Attributes:
        exit_code: the exit code of the command line.
        how_to_resume: the Python call that resumes the run; empty if there is none.
    """

    exit_code = 1
    how_to_resume = ""

    @property
    def text(self) -> str:
        """The text for the user: the error, and the next step."""
        raise NotImplementedError

    def as_json(self) -> dict[str, Any]:
        """Return the error in the form that ``--json`` prints."""
        return {"kind": "error", "exit_code": self.exit_code, "message": self.text}

    def __str__(self) -> str:
        return f"{self.text}\nTo resume: {self.how_to_resume}" if self.how_to_resume else self.text

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback."""
        return str(self).split("\n")


@dataclass
class InputError(ResumergeError):
    """An error in the recipe, a source, the output or the usage. Nothing was written."""

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
    """The reason why a run or a cluster's task stopped early. The texts are part of the JSON."""

    DISK_FULL = "disk_full"
    """A disk has too little free space."""

    MEMORY = "memory"
    """There is too little memory to continue."""

    OPEN_FILES = "open_files"
    """The process has reached its limit of open files."""

    IO = "io"
    """Reading or writing a disk or the ledger failed."""

    NETWORK = "network"
    """The Hub or a bucket with sources does not answer."""

    SOURCE_CHANGED = "source_changed"
    """A file of a source has changed since the run was created."""

    SOURCE_UNAVAILABLE = "source_unavailable"
    """A source cannot be read now, but could be read when the run was created."""

    SHARD_LOST = "shard_lost"
    """A finished shard is neither in the output nor in the mirror."""

    MIRROR = "mirror"
    """The mirror fails, or contains files that this run did not write."""

    MIRROR_TAKEN_OVER = "mirror_taken_over"
    """Another machine has taken over the run in the mirror."""

    METHOD = "method"
    """A user's merge method failed."""

    CLUSTER = "cluster"
    """The Ray cluster cannot be used, or has no machine for a task."""

    HASH_CONFLICT = "hash_conflict"
    """Two machines computed different bytes."""

    OOM = "oom"
    """The kernel or Ray killed a worker because of its memory, or denied it memory."""

    KILLED = "killed"
    """Another process killed the worker."""

    CRASH = "crash"
    """The worker crashed, for example with a segmentation fault."""

    WORKER_STALLED = "stall"
    """The worker made no progress, and the supervisor killed it."""

    REFUSED = "refused"
    """A worker or a machine of the cluster refused to compute this run."""

    ERROR = "error"
    """A task raised an unexpected exception."""

    LOST = "lost"
    """The process or the machine of a task has disappeared."""

    TASK_SILENT = "stalled"
    """A task has sent no message for too long."""

    UNPUBLISHED = "unpublished"
    """A task reports that it is done, but its shard is missing."""

    UNSCHEDULED = "unscheduled"
    """No machine had room for a task; another task would also wait."""

    ABANDONED = "abandoned"
    """The driver of a task has given up the task, or has disappeared."""


@dataclass
class Resumable(ResumergeError):
    """An early stop of a run, which can be resumed (exit code 75).

    All committed blocks are kept.

    Args:
        reason: the kind of cause, for programs; it is a part of the JSON of the error.
        message: the cause, and what to do before resuming.
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
    """The end of a ``--strict`` run with warnings about its numbers; the model is complete.

    Args:
        output: the place of the model, as text.
        warnings: the warnings about the numbers.
        because_of: the option that turns the warnings into an error.
    """

    output: str
    warnings: tuple[str, ...]
    because_of: str = "--strict"
    exit_code = 75

    @property
    def text(self) -> str:
        rows = "".join(f"\n- {warning}" for warning in self.warnings)
        return (
            f"The model in {self.output} is complete, but there are warnings about its numbers. "
            f"With {self.because_of}, they are an error:{rows}"
        )

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"output": self.output, "warnings": list(self.warnings)}


def unavailable(error: InputError) -> Resumable:
    """Return the error of an existing run with a model that can no longer be read.

    Args:
        error: the reason why the model cannot be read now.
    """
    return Resumable(
        Reason.SOURCE_UNAVAILABLE,
        "A model that could be read when the run was created cannot be read now. If it, or a part "
        f"of it, was deleted or moved, put it back, then resume.\n{error}",
    )


@dataclass
class Interrupted(ResumergeError):
    """A stop by a signal (exit code 128 + signal); finished work is committed."""

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
        cause = ": the terminal was closed" if self.signum == signal.SIGHUP else ""
        return f"Stopped by {self.name}{cause}; finished work is committed"

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"kind": "interrupted", "signal": self.name}


class StopSignal(KeyboardInterrupt):
    """The exception by which a signal interrupts the main thread; callers get `Interrupted`.

    It is no `Exception`: libraries repeat a request after any `Exception`, or report it as an error
    of a file.
    """


class StoreError(OSError):
    """A failed request to a server or to a mirror.

    Args:
        message: the failure, for a person; secrets are removed from it.
        fix: the user's remedy; empty if there is none.
        retry_after: the seconds that the server asks clients to wait; 0 if it names none.
        denied: whether the error is permanent, until permissions or names are changed. `errno` is
            then EACCES. Other errors are temporary.
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
