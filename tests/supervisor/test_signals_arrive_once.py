"""Promise: a signal reaches the worker once; worker and supervisor end together, resumably."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import termios
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import posix_only
import psutil
import pytest
from supervised import PATIENT, Supervised, is_alive, wait_until_dead
from terminals import in_a_terminal
from waiting import wait_until


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_supervisor(
    merge: Supervised, reference: dict[str, bytes], signum: int
) -> None:
    process = merge.start("--json")
    worker = merge.wait_until_committed(process)
    process.send_signal(signum)
    stdout, stderr = process.communicate()
    assert process.returncode == 128 + signum, stderr
    assert not is_alive(worker)
    assert merge.outcomes() == ["interrupted"]
    command = stderr.splitlines()[-1]
    assert command.startswith("resumerge resume merged-")
    last = json.loads(stdout.splitlines()[-1])
    assert (last["kind"], last["resume"]) == ("interrupted", command)
    assert last["signal"] == signal.Signals(signum).name
    assert last["exit_code"] == 128 + signum
    merge.resume()
    assert merge.files() == reference


def test_ctrl_c_in_a_terminal(merge: Supervised, reference: dict[str, bytes]) -> None:
    """The worker gets the terminal's SIGINT once: a second one would interrupt the commit.

    The terminal sends it to the supervisor's whole group, and stops other groups that print (`stty
    tostop`); the worker's is one of these.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        modes = termios.tcgetattr(0)
        modes[3] |= termios.TOSTOP
        termios.tcsetattr(0, termios.TCSANOW, modes)
        os.chdir(merge.models)
        os.execve(merge.command[0], merge.command, merge.options["env"])
    said = b""
    os.set_blocking(terminal, False)
    pressed = False
    while True:
        try:
            if not (piece := os.read(terminal, 65536)):
                break
            said += piece
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:  # the terminal's other end is closed
            break
        if not pressed and merge.committed():
            os.write(terminal, b"\x03")
            pressed = True
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130, said
    assert b"Stopped by SIGINT; finished work is committed" in said
    assert b"resumerge resume merged-" in said.strip().splitlines()[-1]
    assert merge.outcomes() == ["interrupted"]
    merge.resume()
    assert merge.files() == reference


@pytest.mark.parametrize("more", [[], ["--no-supervise"]])
def test_the_terminal_is_closed(
    merge: Supervised, reference: dict[str, bytes], more: list[str]
) -> None:
    """The kernel sends SIGHUP, a shell sends it again, and further output fails."""
    command = [*merge.command, *more]
    pid, terminal = in_a_terminal(command, merge.models, merge.options["env"])
    wait_until(merge.committed)
    os.close(terminal)
    time.sleep(0.3)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGHUP)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert merge.outcomes() == ["interrupted"]
    merge.resume()
    assert merge.files() == reference


def test_nohup_is_respected(merge: Supervised, reference: dict[str, bytes]) -> None:
    process = subprocess.Popen(["nohup", *merge.command], text=True, **merge.options)
    worker = merge.wait_until_committed(process)
    process.send_signal(signal.SIGHUP)
    os.kill(worker, signal.SIGHUP)
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert merge.outcomes() == ["done"]
    assert merge.files() == reference


def test_a_signal_to_the_group_and_to_the_process(merge: Supervised) -> None:
    """`timeout` and process managers send a signal to both."""
    merge.code = PATIENT  # a second signal that comes late is another one, after which it may leave
    process = subprocess.Popen(merge.command, text=True, start_new_session=True, **merge.options)
    merge.wait_until_committed(process)
    process.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    _, stderr = process.communicate()
    assert process.returncode == 143, stderr
    assert merge.outcomes() == ["interrupted"]


def has_taken(pid: int, signum: int) -> bool:
    """Return whether a process sleeps and has no pending signal of this kind."""
    status = Path(f"/proc/{pid}/status").read_text()
    facts = dict(line.split(":", 1) for line in status.splitlines())
    return facts["State"].strip().startswith("S") and not int(facts["ShdPnd"], 16) >> signum - 1 & 1


def test_a_second_signal_leaves_at_once(merge: Supervised, reference: dict[str, bytes]) -> None:
    merge.code = PATIENT  # it leaves by itself, however long a busy machine lets it wait
    merge.environment["SLOWLY_SECONDS"] = "1000"
    process = merge.start("--json")
    wait_until((merge.accidents / "begun").exists, process)
    process.send_signal(signal.SIGINT)  # it computes a block, of which this does not disturb it
    [worker] = psutil.Process(process.pid).children()
    for pid in (process.pid, worker.pid):  # signals that come at once have no order
        wait_until(partial(has_taken, pid, signal.SIGINT), process)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1].startswith("resumerge resume merged-")
    assert json.loads(stdout.splitlines()[-1])["resume"] == stderr.splitlines()[-1]
    assert merge.outcomes() == ["interrupted"]
    merge.resume()
    assert merge.files() == reference


def test_a_stopped_worker_hears_it_too(merge: Supervised) -> None:
    process = merge.start()
    os.kill(merge.wait_until_committed(process), signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate()
    assert process.returncode == 143, stderr
    assert merge.outcomes() == ["interrupted"]


def test_a_supervisor_that_is_killed_takes_the_worker_along(
    merge: Supervised, reference: dict[str, bytes]
) -> None:
    process = merge.start()
    worker = merge.wait_until_committed(process)
    process.kill()
    process.communicate()
    wait_until_dead(worker)
    merge.resume()
    assert merge.outcomes() == ["killed", "done"]
    assert merge.files() == reference


def test_where_the_kernel_cannot_be_asked_a_pipe_tells_the_worker(
    merge: Supervised, reference: dict[str, bytes]
) -> None:
    options = merge.options
    options["env"] |= posix_only.environment(merge.folder)
    command = [*posix_only.PROGRAM, *merge.command[3:]]
    process = subprocess.Popen(command, text=True, **options)
    worker = merge.wait_until_committed(process)
    process.kill()
    process.communicate()
    wait_until_dead(worker)
    assert posix_only.noted(merge.folder) == []
    merge.resume()
    assert merge.files() == reference


def test_ctrl_z_stops_both_and_they_go_on(merge: Supervised, reference: dict[str, bytes]) -> None:
    # In a group of its own, as a shell starts it: the kernel stops no orphaned group by SIGTSTP.
    process = subprocess.Popen(merge.command, text=True, preexec_fn=os.setpgrp, **merge.options)
    worker = merge.wait_until_committed(process)
    for _ in range(2):
        process.send_signal(signal.SIGTSTP)
        for pid in (process.pid, worker):
            wait_until(lambda pid=pid: _state(pid) == "T", process)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: _state(worker) != "T", process)
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert merge.files() == reference
    assert merge.outcomes() == ["done"]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
