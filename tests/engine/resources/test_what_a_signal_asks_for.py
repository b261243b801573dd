"""Promise: a signal stops a run at once, or between blocks; a second one ends the run's process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading

import pytest
from waiting import HANGS_SECONDS, wait_until

from resumerge.engine.resources.signals import StopRequest, is_repetition, stop_signals
from resumerge.errors import Interrupted, StopSignal

pytestmark = pytest.mark.cold_start

EACH = pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


def send(signum: int) -> None:
    """Send a signal to this thread: other threads would receive one that is blocked here."""
    signal.raise_signal(signal.Signals(signum))


@EACH
def test_a_signal_interrupts_at_once(signum: int) -> None:
    stop = StopRequest()
    stop.check()
    with pytest.raises(Interrupted) as interrupted, stop.listening():
        send(signum)
    assert interrupted.value.signum == stop.signum == signum


@EACH
def test_between_blocks_it_is_noted(signum: int) -> None:
    stop = StopRequest()
    with stop.listening():
        with stop.deferred():
            assert not stop.requested
            send(signum)
            assert stop.requested
        with pytest.raises(Interrupted) as interrupted:
            stop.check()
    assert interrupted.value.signum == signum


def test_after_the_blocks_a_signal_interrupts_again() -> None:
    stop = StopRequest()
    with stop.listening():
        with pytest.raises(ValueError, match="a bug"), stop.deferred():
            raise ValueError("a bug")
        with pytest.raises(StopSignal):
            send(signal.SIGTERM)


class Awaited:
    """An object whose finalizer sends SIGTERM; exceptions of finalizers are ignored, and shown."""

    def __del__(self) -> None:
        send(signal.SIGTERM)


def test_where_exceptions_are_ignored_it_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    stop, shown = StopRequest(), sys.unraisablehook
    with stop.listening():
        Awaited()
        assert stop.requested
        with pytest.raises(Interrupted):
            stop.check()
    assert sys.unraisablehook is shown
    assert capsys.readouterr() == ("", "")


class Broken:
    def __del__(self) -> None:
        raise ValueError("a bug")


def test_another_ignored_exception_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: seen.append(ignored.exc_type))
    with StopRequest().listening():
        Broken()
    assert seen == [ValueError]


def test_a_patient_one_hears_the_first_alone() -> None:
    """A run in a notebook must not end the notebook's process."""
    stop = StopRequest(patient=True)
    with stop.listening(), stop.deferred():
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            send(signum)
    assert stop.signum == signal.SIGINT


def test_handlers_and_masks_are_as_they_were_and_blocked_signals_are_heard() -> None:
    before = {signum: signal.getsignal(signum) for signum in stop_signals()}
    signal.pthread_sigmask(signal.SIG_BLOCK, before)
    try:
        send(signal.SIGTERM)
        stop = StopRequest()
        with pytest.raises(Interrupted), stop.listening():
            pytest.fail("what came before was lost")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
    assert {signum: signal.getsignal(signum) for signum in before} == before


def test_another_thread_changes_no_handler() -> None:
    before, inside = signal.getsignal(signal.SIGINT), []

    def listens() -> None:
        with StopRequest().listening():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=listens)
    thread.start()
    thread.join()
    assert inside == [before]


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == (signal.SIGINT, signal.SIGTERM)
        with StopRequest().listening():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_only_a_hang_up_that_follows_is_a_repetition() -> None:
    assert is_repetition(signal.SIGHUP, signal.SIGTERM)
    assert not is_repetition(signal.SIGHUP, None)
    assert not is_repetition(signal.SIGTERM, signal.SIGHUP)
    assert not is_repetition(signal.SIGINT, signal.SIGINT)


WAITS = """
import signal, sys, threading, time
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Interrupted

held, main = threading.Lock(), threading.get_ident()
held.acquire()

def waits():
    held.acquire()

def strikes():
    while True:
        frame = sys._current_frames()[main]
        if (frame.f_code, frame.f_lineno) == (waits.__code__, waits.__code__.co_firstlineno + 1):
            break
        time.sleep(0.001)
    # The signal ends no wait of the main thread, because another thread receives it.
    signal.pthread_kill(threading.get_ident(), {signum})
    while not stop.requested:
        time.sleep(0.001)
    held.release()

stop = StopRequest()
try:
    with stop.listening():
        threading.Thread(target=strikes, daemon=True).start()
        if {deferred}:
            with stop.deferred():
                waits()
        else:
            waits()
        stop.check()
except Interrupted as error:
    sys.exit(error.exit_code)
"""


@EACH
@pytest.mark.parametrize("deferred", [False, True])
def test_a_signal_is_heard_although_nothing_ends_the_wait(signum: int, deferred: bool) -> None:
    """A signal that arrives as a wait begins is handled during the wait."""
    program = WAITS.format(signum=int(signum), deferred=deferred)
    ended = subprocess.run([sys.executable, "-c", program], timeout=HANGS_SECONDS)
    assert ended.returncode == 128 + signum


def test_what_others_have_for_signals_is_used_too() -> None:
    """A notebook's event loop has a wake-up descriptor; another library may handle SIGURG."""
    heard: list[int] = []
    usual_handler = signal.signal(signal.SIGURG, lambda signum, frame: heard.append(signum))
    read_end, write_end = os.pipe2(os.O_NONBLOCK)
    usual = signal.set_wakeup_fd(write_end)
    try:
        with StopRequest().listening() as stop, stop.deferred():
            send(signal.SIGTERM)
            wait_until(lambda: heard and select.select([read_end], [], [], 0)[0])
        assert signal.SIGTERM in os.read(read_end, 100)
        assert signal.set_wakeup_fd(write_end) == write_end
        heard.clear()
        send(signal.SIGURG)
        assert heard == [signal.SIGURG]
    finally:
        signal.signal(signal.SIGURG, usual_handler)
        signal.set_wakeup_fd(usual)
        os.close(read_end)
        os.close(write_end)


ENDS = """
import os, signal, sys
from resumerge.engine.resources.signals import StopRequest
stop = StopRequest(lambda signum: os.write(1, b"%d" % signum), final={final})
with stop.listening(), stop.deferred():
    for signum in {signums}:
        os.kill(os.getpid(), signum)
if {final}:
    os.kill(os.getpid(), signal.SIGTERM)
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("signums", "final", "code", "said"),
    [
        ((2, 15), False, 130, "2"),
        ((15, 2), False, 143, "15"),
        ((15, 1), False, 3, ""),
        ((1, 1, 1), False, 3, ""),
        ((1, 2), False, 129, "1"),
        ((), True, 3, ""),
    ],
)
def test_a_second_one_ends_the_process_with_the_code_of_the_first(
    signums: tuple[int, ...], final: bool, code: int, said: str
) -> None:
    """A SIGHUP after another signal has no effect; after a final run, no signal has one."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDS.format(signums=signums, final=final)],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (code, said), ended.stderr
