"""Promise: a signal ends the worker, a second one at once, and no other worker is started."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest
from supervisors import Supervise
from waiting import kill_wholly

COUNTS = """
def work(pipe, spec, number):
    pipe.tell(run="a run")
    came = listen(signal.SIGINT, signal.SIGTERM)
    for number in range(1, 10):
        come_to(came, number)
        pass_time(0.2)
        say("later")
"""
"""Time passes after each signal, more than that in which the same one is the same."""
BY_ITSELF = """
supervisor.SAME_SECONDS = 60
def work(pipe, spec, number):
    pipe.tell(run="a run")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    listen(signal.SIGINT, signal.SIGTERM)
    while not signal.sigtimedwait([signal.SIGUSR1], 0.01):
        pass
    return 7
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_same_signal_soon_after_is_the_same(supervise: Supervise, signum: int) -> None:
    supervising = supervise(BY_ITSELF)
    supervising.send_after("listens", signum)
    supervising.send_after("signal", signum)
    os.kill(supervising.wait_for("works")["pid"], signal.SIGUSR1)
    supervising.end()
    assert [said["signum"] for said in supervising.of("signal")] == [signum]
    assert supervising.code == 7, "it had its time to end by itself"
    assert not supervising.of("recorded")


@pytest.mark.parametrize("signums", [(2, 15), (15, 2)])
def test_another_signal_soon_after_is_the_second(
    supervise: Supervise, signums: tuple[int, int]
) -> None:
    """A process manager may end all processes soon after Ctrl-C."""
    supervising = supervise("supervisor.SAME_SECONDS = 60\n" + COUNTS)
    supervising.send_after("listens", signums[0])
    supervising.send_after("later", signums[1])  # no time of the first one counts for it
    supervising.end()
    assert [said["signum"] for said in supervising.of("signal")] == list(signums)
    assert supervising.code == 128 + signums[0]
    [stopped] = supervising.of("stopped")
    assert (stopped["signum"], stopped["run"]) == (signums[0], "a run")


def test_the_same_signal_again_is_the_second(supervise: Supervise) -> None:
    supervising = supervise(COUNTS)
    supervising.send_after("listens", signal.SIGTERM)
    supervising.send_after("later", signal.SIGTERM)
    supervising.end()
    assert len(supervising.of("signal")) == 2
    assert supervising.code == 143


def test_more_signals_give_no_more_time(supervise: Supervise) -> None:
    supervising = supervise("supervisor.LEAVE_SECONDS = 0.55\n" + COUNTS)
    supervising.send_after("listens", signal.SIGINT)
    number = 1
    while supervising.goes_on("later", number):
        supervising.send(signal.SIGTERM)
        number += 1
    assert number == 4, "0.55 s after the second, of which each takes 0.2 s"
    supervising.end()
    assert supervising.code == 130


def test_a_worker_that_was_stopped_gets_a_signal_too(supervise: Supervise) -> None:
    supervising = supervise("""
        supervisor.LEAVE_SECONDS = 60
        def work(pipe, spec, number):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)
    """)
    worker = psutil.Process(supervising.wait_for("works")["pid"])
    while worker.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    supervising.send(signal.SIGTERM)
    assert supervising.kinds() == ["stopping", "stopped", "ended"]
    assert supervising.code == 143


def test_who_ends_by_itself_after_two_signals_is_recorded(supervise: Supervise) -> None:
    supervising = supervise("""
        supervisor.LEAVE_SECONDS = 10
        def work(pipe, spec, number):
            pipe.tell(run="a run")
            came = []
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, lambda signum, frame: came.append(signum))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
            say("listens")
            while len(came) < 2:
                time.sleep(0.01)
            return 130
    """)
    supervising.send_after("listens", signal.SIGINT, signal.SIGTERM)
    assert supervising.kinds("listens", "stopping") == ["recorded", "ended"]
    assert supervising.of("recorded")[0]["cause"] == "interrupted"
    assert supervising.code == 130


def test_no_other_worker_is_started_for_one_that_died_of_a_signal(supervise: Supervise) -> None:
    supervising = supervise("""
        committed += [3]
        def work(pipe, spec, number):
            pipe.tell(run="a run")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            say("listens")
            time.sleep(60)
    """)
    supervising.send_after("listens", signal.SIGTERM)
    assert supervising.kinds("listens") == ["stopping", "recorded", "stopped", "ended"]
    assert supervising.code == 143
    assert len(supervising.of("works")) == 1


def test_a_signal_in_a_pause_ends_it(supervise: Supervise) -> None:
    supervising = supervise("""
        OOM += [True] * 4
        clock.holds_pauses = True
        committed += [0] * 4
        def work(pipe, spec, number):
            pipe.tell(run="a run", budget=100)
            die()
    """)
    assert supervising.wait_for("pauses", 2)["failures"] == 2, "of a second"
    supervising.send(signal.SIGINT)
    assert supervising.kinds("recorded") == ["died"] * 2 + ["stopped", "ended"]
    assert supervising.code == 130
    assert len(supervising.of("works")) == 2


@pytest.mark.parametrize(("before", "times"), [("SIG_DFL", 1), ("SIG_IGN", 0)])
def test_ctrl_z_is_ignored_where_it_was(supervise: Supervise, before: str, times: int) -> None:
    """A shell without job control ignores SIGTSTP: it would never continue a stopped process."""
    supervising = supervise(f"""
        signal.signal(signal.SIGTSTP, signal.{before})
        supervisor.Supervisor._suspend = lambda self, worker: say("suspended")
        def work(pipe, spec, number):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            say("begun")
            signal.sigwait([signal.SIGUSR1])
    """)
    supervising.send_after("begun", signal.SIGTSTP)
    if times:
        supervising.wait_for("suspended")
    os.kill(supervising.wait_for("works")["pid"], signal.SIGUSR1)
    supervising.end()
    assert len(supervising.of("suspended")) == times


def test_when_all_is_done_signals_change_nothing(supervise: Supervise) -> None:
    supervising = supervise("""
        import atexit
        work = lambda pipe, spec, number: 0
        def late():
            for signum in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), signum)
        atexit.register(late)
    """)
    supervising.end()
    assert supervising.process.returncode == 0


def test_one_that_cannot_be_killed_after_a_signal_is_left_with_its_code(
    supervise: Supervise,
) -> None:
    supervising = supervise("""
        send_no_kills()
        def work(pipe, spec, number):
            pipe.tell(run="a run")
            come_to(listen(signal.SIGINT, signal.SIGTERM), 2)
            pass_time(FOREVER)
    """)
    supervising.send_after("listens", signal.SIGINT)
    supervising.send_after("signal", signal.SIGTERM)
    assert supervising.kinds("kills", "signal", "listens") == ["stopping", "stopped", "ended"]
    assert supervising.code == 130
    assert supervising.of("stopped")[0]["run"] == "a run"
    kill_wholly([supervising.of("works")[0]["pid"]])
