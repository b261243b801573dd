"""``--detach``: a merge that goes on when its terminal is closed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from click.exceptions import Exit

from resumerge.engine.resources.lock import LOCK_FILE, lock_holder
from resumerge.ledger.run_store import STAGED, RunStore
from resumerge.storage import Storage
from resumerge.ui.terminal.console import print_json_line
from resumerge.ui.terminal.terminal import err, print_command, print_text
from resumerge.ui.text.commands import watch_command

LOG_FILE, JSON_FILE = "detached.log", "detached.jsonl"
"""The files in the run's folder with what is printed to stderr and, with ``--json``, to stdout."""

_POLL_SECONDS = 0.1


def detach(runs: RunStore, *, as_json: bool) -> None:
    """Return in a new process without a terminal, whose output goes to files in the state folder.

    The calling process ends. It exits with 0 when the new process works on a run, and prints which;
    it exits with the new process's code and output when that ends before.

    Args:
        runs: the folder of the ledgers.
        as_json: whether to tell programs, too, on stdout.

    Raises:
        click.exceptions.Exit: in the calling process.
        OSError: the state folder cannot be written.
    """
    Storage().make_folder(runs.folder)
    logs = [runs.folder / f"{os.getpid()}-{name}" for name in (LOG_FILE, JSON_FILE)[: 1 + as_json]]
    files = [os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for log in logs]
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(files[0], 2)
        os.dup2(files[-1], 1)
        return
    raise Exit(_follow(pid, runs, logs, as_json=as_json))


def _follow(pid: int, runs: RunStore, logs: list[Path], *, as_json: bool) -> int:
    """Wait until a process works on a run or has ended, and return the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the logs get to the run without a terminal, too
    while (run := _run_of(pid, runs)) is None:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                if code and not any(log.stat().st_size for log in logs):
                    print_text(
                        f"The background process wrote no log. Is the disk of {logs[0]} full?", err
                    )
                _print_and_remove(logs)
                return code if code >= 0 else 128 - code
            time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:  # the other session does not get it
            os.kill(pid, signal.SIGINT)
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
        told = {"run": run.name, "pid": pid, "log": str(log), "watch": command}
        print_json_line(sys.stdout, "detached", **told)
    return 0


def _run_of(pid: int, runs: RunStore) -> Path | None:
    """Return the run that a process of the session works on, found by its lock.

    No ledger is opened.
    """
    locks = (lock for lock in runs.folder.glob(f"*/{LOCK_FILE}") if lock.parent.suffix != STAGED)
    for lock in locks:
        worker = (lock_holder(lock.parent) or {}).get("pid")
        try:
            if isinstance(worker, int) and os.getsid(worker) == pid:
                return lock.parent
        except ProcessLookupError:
            continue
    return None


def _print_and_remove(logs: list[Path]) -> None:
    for log, stream in zip(logs, (sys.stderr, sys.stdout), strict=False):
        stream.write(log.read_text(errors="replace"))
        stream.flush()
        log.unlink()
