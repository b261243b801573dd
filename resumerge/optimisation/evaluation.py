"""The evaluation of a model: the user's command, its time limit, and the numbers that it prints."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from resumerge.engine.resources.signals import StopRequest
from resumerge.host.processes import birth

MODEL = "{model}"
VALUE = "value"
"""The name of the metric of a command that prints a number alone."""

STDOUT, STDERR = "evaluation.out", "evaluation.err"
"""The files with what a command printed, in the folder of its trial."""

PROCESS = "evaluation.pid"
"""The file with the process of a command, and its birth, as long as it runs."""

_POLL_SECONDS = 0.1
_LONGEST_LINE = 1 << 20
_SHOWN = 200


class TrialFailed(Exception):
    """The error of a trial without values: its text says why, of its command or its recipe."""


def evaluate(
    command: str,
    model: Path,
    folder: Path,
    seconds: float | None,
    stop: StopRequest,
    heartbeat: Callable[[], None],
) -> dict[str, float]:
    """Run a command on a model, and return the metrics that it printed.

    A command that was left over when a search was killed is killed before.

    Args:
        command: a line for the shell; `MODEL` stands for the model's folder.
        model: that folder.
        folder: the folder for what the command prints.
        seconds: its time limit; None for none.
        stop: whether this process has been asked to stop.
        heartbeat: called several times a second.

    Returns:
        the numbers of the last line of stdout by their names, `VALUE` for a number alone.

    Raises:
        TrialFailed: it exited with another code than 0, took too long, or printed no number.
        Interrupted: this process has been asked to stop; the command is killed.
    """
    _kill_left_over(folder / PROCESS)
    line = command.replace(MODEL, shlex.quote(str(model)))
    with (folder / STDOUT).open("wb") as out, (folder / STDERR).open("wb") as err:
        process = subprocess.Popen(
            line, shell=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        try:
            (folder / PROCESS).write_text(f"{process.pid} {birth(process.pid) or 0}")
            code = _wait(process, seconds, stop, heartbeat)
        finally:
            if process.poll() is None:
                _kill(process.pid)
                process.wait()
            (folder / PROCESS).unlink(missing_ok=True)
    if code is None:
        raise TrialFailed(f"it took longer than {seconds:g} s, and was killed")
    if code != 0:
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        raise TrialFailed(f"it {how}{_last_words(folder / STDERR)}")
    return read_metrics(_last_line(folder / STDOUT))


def _kill_left_over(path: Path) -> None:
    """Kill the command that a file names, if it still runs."""
    try:
        pid, born = map(int, path.read_text().split())
    except (OSError, ValueError):
        return
    if born and birth(pid) == born:
        _kill(pid)
        while birth(pid) == born:
            sleep(_POLL_SECONDS)


def read_metrics(line: str) -> dict[str, float]:
    """Return the numbers in a line: one, or those of a JSON object by their names.

    Raises:
        TrialFailed: there are none.
    """
    if not line:
        raise TrialFailed("it printed nothing on stdout")
    with suppress(ValueError):  # nan and inf are numbers here, which are told of by name
        return {VALUE: float(line)}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TrialFailed(
            f"the last line on stdout is neither a number nor a JSON object: {_short(line)}"
        )
    metrics = {}
    for name, value in found.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                metrics[name] = float(value)
    if not metrics:
        raise TrialFailed(f"the JSON object has no number: {_short(line)}")
    return metrics


def values_of(metrics: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """Return the values of the objectives.

    Raises:
        TrialFailed: one is missing, or is not finite.
    """
    for name in names:
        if name not in metrics:
            there = ", ".join(metrics)
            raise TrialFailed(f"it printed no metric {name!r}, but {there}")
        if not math.isfinite(metrics[name]):
            raise TrialFailed(f"{name} is {metrics[name]}")
    return [metrics[name] for name in names]


def _wait(
    process: subprocess.Popen[bytes],
    seconds: float | None,
    stop: StopRequest,
    heartbeat: Callable[[], None],
) -> int | None:
    """Return the exit code; None if the time is over before."""
    end = math.inf if seconds is None else monotonic() + seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(max(0.0, min(_POLL_SECONDS, end - monotonic())))
        stop.check()
        heartbeat()
        if monotonic() >= end:
            return None


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _last_line(path: Path) -> str:
    """Return the last line that is not blank; empty if there is none."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST_LINE))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _last_words(path: Path) -> str:
    line = _last_line(path)
    return f": {_short(line)}" if line else ""


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
