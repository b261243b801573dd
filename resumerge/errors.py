"""What can go wrong, as classes that carry the facts; exit codes are the command line's."""

from __future__ import annotations

from dataclasses import dataclass, field

from resumerge.printable import printable


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input, told so that a person can mend it.

    Args:
        what: one sentence, what is wrong.
        where: the file (or model) it is in.
        path: the path inside a YAML file, like ``slices[0].sources[1].layer_range``.
        line: line in that file, counted from 1.
        expected: what would have been right.
        found: what stands there.
        fix: what to do or to write instead.
    """

    what: str
    where: str = ""
    path: str = ""
    line: int | None = None
    expected: str = ""
    found: str = ""
    fix: str = ""

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
        return "\n".join(rows)


class ResumergeError(Exception):
    """Base of every error that the program raises on purpose.

    Attributes:
        exit_code: that the command line ends with.
        go_on: what to type in Python to go on; empty where nobody has said it.
    """

    exit_code = 1
    go_on = ""

    @property
    def told(self) -> str:
        """What happened, for a person."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.told}\nTo go on: {self.go_on}" if self.go_on else self.told

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback: nothing in it would help its reader."""
        return str(self).split("\n")


@dataclass
class InputError(ResumergeError):
    """The recipe, a source, the output or the usage is unfit. Nothing was written."""

    problems: list[Problem] = field(default_factory=list)
    exit_code = 2

    @property
    def told(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


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
    """An `InputError` with a single problem, to be raised."""
    return InputError([Problem(what, str(where), path, line, str(expected), str(found), fix)])


@dataclass
class Resumable(ResumergeError):
    """The run stopped short through no fault of the recipe; what is committed stays (exit 75).

    Args:
        reason: ``disk_full``, ``memory``, ``network``, ``source_changed`` …
        message: for a person: what happened and what to do before resuming.
    """

    reason: str
    message: str
    exit_code = 75

    @property
    def told(self) -> str:
        return self.message


@dataclass
class Interrupted(ResumergeError):
    """SIGINT or SIGTERM arrived; what was computed is committed (exit 128 + signal)."""

    signum: int

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return 128 + self.signum

    @property
    def name(self) -> str:
        """Of the signal."""
        return "SIGINT" if self.signum == 2 else "SIGTERM"

    @property
    def told(self) -> str:
        return f"Stopped by {self.name}; what was done is committed"
