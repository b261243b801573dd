"""``--detach``: a merge in the background, which continues when its terminal is closed."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

from click.exceptions import Exit

from resumerge.engine.resources.lock import LOCK_FILE, lock_holder
from resumerge.ledger.run_store import STAGED, RunStore
from resumerge.storage import Storage
from resumerge.ui.terminal.console import print_json_line
from resumerge.ui.terminal.terminal import err, print_command, print_text
from resumerge.ui.text.commands import watch_command

LOG_FILE, JSON_FILE = "detached.log", "detached.jsonl"
"""The files in the run's folder for the output to stderr and, with ``--json``, to stdout."""

_POLL_SECONDS = 0.1


def detach(runs: RunStore, *, as_json: bool) -> None:
    """Fork, and return only in the new process, which has no terminal and writes to log files.

    The calling process waits until the new process works on a run. It then prints the run's id and
    exits with 0. If the new process ends before that, the calling process prints the log and exits
    with the same code.

    Args:
        runs: the state folder, where the log files are created.
        as_json: whether the id is also printed on stdout as JSON.

    Raises:
        click.exceptions.Exit: in the calling process, always.
        OSError: the state folder cannot be written.
    """
    Storage().make_folder(runs.folder)
    logs = [runs.folder / f"{os.getpid()}-{name}" for name in (LOG_FILE, JSON_FILE)[: 1 + as_json]]
    files = [os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for log in logs]
    sys.stdout.flush()
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(files[0], 2)
        os.dup2(files[-1], 1)
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal must not prevent the moves
    signal.signal(signal.SIGINT, partial(_pass_on, pid))  # Ctrl-C does not reach the new session
    signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
    raise Exit(_follow(pid, runs, logs, as_json=as_json))


def _pass_on(pid: int, signum: int, frame: FrameType | None) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def _follow(pid: int, runs: RunStore, logs: list[Path], *, as_json: bool) -> int:
    """Wait until a process works on a run or has ended, and return this process's exit code."""
    while (run := _run_of(pid, runs)) is None:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            code = os.waitstatus_to_exitcode(status)
            if code and not any(log.stat().st_size for log in logs):
                print_text(
                    f"The background process wrote no log. Is the disk of {logs[0]} full?", err
                )
            _print_and_remove(logs)
            return code if code >= 0 else 128 - code
        time.sleep(_POLL_SECONDS)
    for log in logs:
        log.rename(run / log.name.partition("-")[2])
    log, command = run / LOG_FILE, watch_command(run.name, runs.folder)
    print_text(
        f"Run {run.name} continues in the background (pid {pid}). Its output goes to {log}", err
    )
    print_text(f"To stop it (it can be resumed): kill {pid}", err)
    print_text("To see its progress:", err)
    print_command(command)
    if as_json:
        fields = {"run": run.name, "pid": pid, "log": str(log), "watch": command}
        print_json_line(sys.stdout, "detached", **fields)
    return 0


def _run_of(pid: int, runs: RunStore) -> Path | None:
    """Return the folder of the run on which a process of the session `pid` works, if there is one.

    The run is found by its lock. No ledger is opened.
    """
    locks = (lock for lock in runs.folder.glob(f"*/{LOCK_FILE}") if lock.parent.suffix != STAGED)
    for lock in locks:
        worker_pid = (lock_holder(lock.parent) or {}).get("pid")
        try:
            if isinstance(worker_pid, int) and os.getsid(worker_pid) == pid:
                return lock.parent
        except ProcessLookupError:
            continue
    return None


def _print_and_remove(logs: list[Path]) -> None:
    for log, stream in zip(logs, (sys.stderr, sys.stdout), strict=False):
        stream.write(log.read_text(errors="replace"))
        stream.flush()
        log.unlink()
