"""The page's calls of commands of the program, each in its own process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.errors import (
    DoubtfulNumbers,
    InputError,
    Interrupted,
    Problem,
    Reason,
    Resumable,
    ResumergeError,
    refuse,
)

Process = subprocess.Popen[str]


@dataclass(frozen=True)
class Commands:
    """A runner of commands in a folder.

    Args:
        folder: the working folder of the processes, to which paths in their words are relative.
        state_dir: the folder of the ledgers.
        environment: the environment of the processes; None for the environment of this process.
    """

    folder: Path
    state_dir: Path
    environment: Mapping[str, str] | None = None

    def document(self, *words: str) -> dict[str, Any]:
        """Return the document that a command prints with ``--json``, with any exit code.

        Args:
            words: the command, like ``plan``, and its arguments.

        Raises:
            InputError: the command refused its arguments.
            Resumable: the command stopped before its end.
        """
        return _document(words, *self._ended(words))

    def detach(self, *words: str) -> None:
        """Start a command that merges, and wait until it works on its run or has ended.

        The command continues if this process ends.

        Args:
            words: the command, like ``run``, and its arguments.

        Raises:
            InputError: the command refused its arguments; nothing was written.
            Resumable: the command stopped; the same command continues its work.
        """
        code, printed, stderr = self._ended([words[0], "--detach", *words[1:]])
        if code:
            raise _error(words, code, printed, stderr)

    def follow(
        self, words: Sequence[str], began: Callable[[Process], None]
    ) -> Iterator[str | dict[str, Any]]:
        """Yield the lines that a command prints to stderr while it works, and then its document.

        Args:
            words: the command, like ``push``, and its arguments.
            began: called with the process, which stops at SIGINT.

        Raises:
            InputError: the command refused its arguments.
            Resumable, Interrupted: the command stopped before its end.
            DoubtfulNumbers: a run that began with ``--strict`` is complete, with warnings.
        """
        stderr_end = ""
        with tempfile.TemporaryFile("w+", errors="replace") as stdout_file:
            with self._process(words, stdout_file) as process:
                began(process)
                assert process.stderr is not None
                for line in process.stderr:
                    stderr_end = (stderr_end + line)[-_MOST_SAID:]
                    yield line.strip()
            stdout_file.seek(0)
            yield _document(words, process.returncode, stdout_file.read(), stderr_end)

    def _ended(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a command to its end, and return (exit code, stdout, stderr)."""
        with self._process(words, subprocess.PIPE) as process:
            printed, stderr = process.communicate()
        return process.returncode, printed, stderr

    def _process(self, words: Sequence[str], stdout: Any) -> Process:
        # With -P, Python imports no modules from the folder.
        command_line = [sys.executable, "-P", "-m", "resumerge", words[0]]
        return subprocess.Popen(
            [*command_line, "--state-dir", str(self.state_dir), "--json", *words[1:]],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )


_MOST_SAID = 2000


def ask_to_stop(process: Process) -> None:
    """Send SIGINT to a process, as Ctrl-C does."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def _document(words: Sequence[str], code: int, printed: str, said: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(printed)
    except ValueError:
        raise _error(words, code, printed, said) from None
    if "kind" in document:
        raise _error(words, code, printed, said)
    return document


def _error(words: Sequence[str], code: int, printed: str, said: str) -> ResumergeError:
    """Return the error of a command, from its last line of JSON."""
    try:
        error: dict[str, Any] = json.loads(printed.splitlines()[-1])
        if error["kind"] == "interrupted":
            return Interrupted(signal.Signals[error["signal"]])
        if "problems" in error:
            return InputError([Problem(**problem) for problem in error["problems"]])
        if "warnings" in error:
            return DoubtfulNumbers(error["output"], tuple(error["warnings"]))
        return Resumable(Reason(error["reason"]), error["message"])
    except (IndexError, KeyError, TypeError, ValueError):
        return refuse(
            f"`resumerge {words[0]}` failed",
            expected="a document, and an exit code of 0",
            found=f"{code}: {said.strip()[-1000:]}",
        )
