"""The evaluation of models: the user's command, its time limit, and the numbers that it prints."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter, sleep

from resumerge.engine.resources.signals import StopRequest
from resumerge.host.processes import birth

MODEL = "{model}"
VALUE = "value"
"""The name of the metric of a command that prints a number alone."""

STDOUT, STDERR = "evaluation.out", "evaluation.err"
"""The files with what a command printed, in the folder of its trial."""

PROCESS = "evaluation.pid"
"""The file with the pid and the birth of a command's process; it exists while the command runs."""

JOB = "RESUMERGE_JOB"
"""The environment variable with a command's number, from 0, among the commands that run at once."""

_POLL_SECONDS = 0.1
_LONGEST_LINE = 1 << 20
_SHOWN = 200


class TrialFailed(Exception):
    """The error of a trial without values; its text gives the reason in the command or recipe."""


@dataclass(frozen=True)
class Candidate:
    """A model to evaluate.

    Args:
        number: the number of its trial in the study.
        model: the folder of the merged model, which replaces `MODEL` in the command.
        folder: the folder for what the command prints.
    """

    number: int
    model: Path
    folder: Path


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation.

    Args:
        number: the number of the trial in the study.
        metrics: the numbers of the last line of stdout by their names, `VALUE` for a number alone.
        error: the reason why there are no metrics; empty if there are.
        seconds: the duration of the evaluation.
    """

    number: int
    metrics: dict[str, float]
    error: str
    seconds: float


class _Evaluation:
    """A running command, in a process group of its own, with a time limit."""

    def __init__(self, line: str, candidate: Candidate, seconds: float | None, job: int) -> None:
        self.candidate, self._seconds = candidate, seconds
        self._began, self._process = perf_counter(), candidate.folder / PROCESS
        self._code: int | None = None
        with (
            (candidate.folder / STDOUT).open("wb") as stdout_file,
            (candidate.folder / STDERR).open("wb") as stderr_file,
        ):
            self._command = subprocess.Popen(
                line.replace(MODEL, shlex.quote(str(candidate.model))),
                shell=True, stdin=subprocess.DEVNULL, stdout=stdout_file, stderr=stderr_file,
                start_new_session=True, env={**os.environ, JOB: str(job)},
            )  # fmt: skip
        try:
            pid = self._command.pid
            self._process.write_text(f"{pid} {birth(pid) or 0}")
        except BaseException:
            self.end()
            raise
        self._ends = math.inf if seconds is None else monotonic() + seconds

    def is_over(self, wait: float) -> bool:
        """Wait for some seconds; return whether the command has ended or its time is over."""
        with suppress(subprocess.TimeoutExpired):
            self._code = self._command.wait(max(0.0, min(wait, self._ends - monotonic())))
            return True
        return monotonic() >= self._ends

    def end(self) -> None:
        """Kill the command with all processes that it started, if it still runs."""
        if self._command.poll() is None:
            _kill(self._command.pid)
            self._command.wait()
        self._process.unlink(missing_ok=True)

    def result(self) -> Evaluated:
        """Return the result of the command after its end."""
        metrics: dict[str, float] = {}
        error = ""
        try:
            metrics = self._metrics()
        except TrialFailed as failure:
            error = str(failure)
        return Evaluated(self.candidate.number, metrics, error, perf_counter() - self._began)

    def _metrics(self) -> dict[str, float]:
        code = self._code
        if code is None:
            raise TrialFailed(f"it took longer than {self._seconds:g} s, and was killed")
        if code != 0:
            ending = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            raise TrialFailed(f"it {ending}{_last_words(self.candidate.folder / STDERR)}")
        return read_metrics(_last_line(self.candidate.folder / STDOUT))


def evaluate(
    command: str,
    candidates: Sequence[Candidate],
    seconds: float | None,
    jobs: int,
    stop: StopRequest,
    heartbeat: Callable[[], None],
) -> Iterator[Evaluated]:
    """Run a command on models, some at a time, and yield the result of each as it ends.

    Commands that a killed search left running are killed first. Closing the iterator kills the
    running commands.

    Args:
        command: a line for the shell; `MODEL` stands for the model's folder. `JOB` is in its
            environment.
        candidates: the models, in the order in which their evaluations begin.
        seconds: the time limit of each evaluation; None for no limit.
        jobs: the number of commands at a time.
        stop: whether this process has been asked to stop.
        heartbeat: called several times a second.

    Raises:
        Interrupted: this process has been asked to stop; the commands are killed.
    """
    for candidate in candidates:
        _kill_leftovers(candidate.folder / PROCESS)
    waiting_candidates, evaluation_by_job = list(candidates), dict[int, _Evaluation]()
    try:
        while waiting_candidates or evaluation_by_job:
            for job in range(jobs):
                if waiting_candidates and job not in evaluation_by_job:
                    with stop.deferred():
                        evaluation_by_job[job] = _Evaluation(
                            command, waiting_candidates.pop(0), seconds, job
                        )
            poll_seconds = _POLL_SECONDS
            for job, evaluation in sorted(
                evaluation_by_job.items(), key=lambda each: each[1].candidate.number
            ):
                if evaluation.is_over(poll_seconds):
                    del evaluation_by_job[job]
                    evaluation.end()
                    yield evaluation.result()
                poll_seconds = 0.0
            stop.check()
            heartbeat()
    finally:
        for evaluation in evaluation_by_job.values():
            evaluation.end()


def _kill_leftovers(path: Path) -> None:
    """Kill the command that a file names, if it still runs."""
    try:
        pid, start_ticks = map(int, path.read_text().split())
    except (OSError, ValueError):
        return
    if start_ticks and birth(pid) == start_ticks:
        _kill(pid)
        while birth(pid) == start_ticks:
            sleep(_POLL_SECONDS)


def read_metrics(line: str) -> dict[str, float]:
    """Return the numbers in a line by their names: a single number as `VALUE`, or a JSON object's.

    Raises:
        TrialFailed: the line has no numbers.
    """
    if not line:
        raise TrialFailed("it printed nothing on stdout")
    with suppress(ValueError):  # nan and inf are numbers here, for a message that names the metric
        return {VALUE: float(line)}
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise TrialFailed(
            f"the last line on stdout is neither a number nor a JSON object: {_short(line)}"
        )
    metrics = {}
    for name, value in content.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                metrics[name] = float(value)
    if not metrics:
        raise TrialFailed(f"the JSON object has no number: {_short(line)}")
    return metrics


def values_of(metrics: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """Return the values of the objectives.

    Raises:
        TrialFailed: a value is missing, or is not finite.
    """
    for name in names:
        if name not in metrics:
            printed_names = ", ".join(metrics)
            raise TrialFailed(f"it printed no metric {name!r}, but {printed_names}")
        if not math.isfinite(metrics[name]):
            raise TrialFailed(f"{name} is {metrics[name]}")
    return [metrics[name] for name in names]


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _last_line(path: Path) -> str:
    """Return the last line of a file that is not blank; empty if all are blank."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST_LINE))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _last_words(path: Path) -> str:
    line = _last_line(path)
    return f": {_short(line)}" if line else ""


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
