"""Runs commands of the program for the page, each in its own process."""

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
    """Runs commands in a folder.

    Args:
        folder: the working folder.
        state_dir: the folder of the ledgers.
        environment: the variables of the processes; None for those of this one.
    """

    folder: Path
    state_dir: Path
    environment: Mapping[str, str] | None = None

    def document(self, *words: str) -> dict[str, Any]:
        """Return the document that a command prints with ``--json``, whatever its exit code is.

        Args:
            words: the command and its arguments.

        Raises:
            InputError: the command refused its arguments.
            Resumable: the command stopped before its end.
        """
        return _document(words, *self._ended(words))

    def detach(self, *words: str) -> None:
        """Run a command that merges, until it works on its run or has ended.

        It goes on when this process ends.

        Args:
            words: the command and its arguments.

        Raises:
            InputError: the command refused its arguments; nothing was written.
            Resumable: the command stopped; the same command goes on.
        """
        code, printed, said = self._ended([words[0], "--detach", *words[1:]])
        if code:
            raise _error(words, code, printed, said)

    def follow(
        self, words: Sequence[str], began: Callable[[Process], None]
    ) -> Iterator[str | dict[str, Any]]:
        """Yield the lines that a command prints as it works, and then its document.

        Args:
            words: the command and its arguments.
            began: called with the process, which SIGINT stops.

        Raises:
            InputError: the command refused its arguments.
            Resumable, Interrupted: the command stopped before its end.
        """
        said = ""
        with tempfile.TemporaryFile("w+", errors="replace") as printed:
            with self._process(words, printed) as process:
                began(process)
                assert process.stderr is not None
                for line in process.stderr:
                    said = (said + line)[-_MOST_SAID:]
                    yield line.strip()
            printed.seek(0)
            yield _document(words, process.returncode, printed.read(), said)

    def _ended(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a command to its end; return its exit code, its stdout and its stderr."""
        with self._process(words, subprocess.PIPE) as process:
            printed, said = process.communicate()
        return process.returncode, printed, said

    def _process(self, words: Sequence[str], stdout: Any) -> Process:
        # -P: modules in the folder are not imported.
        begins = [sys.executable, "-P", "-m", "resumerge", words[0]]
        return subprocess.Popen(
            [*begins, "--state-dir", str(self.state_dir), "--json", *words[1:]],
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
    """Ask a process to stop, as Ctrl-C does."""
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
    """Return the error that a command ended with, from its last line of JSON."""
    try:
        told: dict[str, Any] = json.loads(printed.splitlines()[-1])
        if told["kind"] == "interrupted":
            return Interrupted(signal.Signals[told["signal"]])
        if "problems" in told:
            return InputError([Problem(**problem) for problem in told["problems"]])
        return Resumable(Reason(told["reason"]), told["message"])
    except (IndexError, KeyError, TypeError, ValueError):
        return refuse(
            f"`resumerge {words[0]}` failed",
            expected="a document, and an exit code of 0",
            found=f"{code}: {said.strip()[-1000:]}",
        )
