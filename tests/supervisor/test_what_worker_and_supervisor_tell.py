"""Promise: a worker's messages arrive whole and never block it; its death is in the ledger."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ledger_rows import query
from merging import merge
from tiny_models import LLAMA, write_family

from resumerge.engine.reporter import Reporter
from resumerge.host.stalled import ThreadState
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.supervisor import heartbeat_pipe
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe, Listener
from resumerge.supervisor.heartbeat_reporter import HeartbeatReporter
from resumerge.supervisor.ledger_entries import committed_blocks, record_death, record_interrupted
from resumerge.supervisor.worker_exit import WorkerExit, cause_of

Ends = tuple[HeartbeatPipe, Listener, int]


@pytest.fixture
def ends() -> Iterator[Ends]:
    receive, send = os.pipe()
    yield HeartbeatPipe(send), Listener(receive), send
    for fd in (receive, send):
        with suppress(OSError):
            os.close(fd)


def test_facts_arrive_and_the_last_of_a_name_counts(ends: Ends) -> None:
    pipe, listener, _ = ends
    assert not listener.receive()
    pipe.tell(run="a", budget=1)
    pipe.tell(budget=2)
    assert listener.receive()
    assert listener.facts == {"run": "a", "budget": 2}
    assert not listener.receive()
    assert listener.is_open


def test_a_line_that_arrives_in_pieces_is_one(ends: Ends) -> None:
    _, listener, send = ends
    os.write(send, b'{"run": ')
    assert not listener.receive()
    os.write(send, b'"a"}\n{"bud')
    assert listener.receive()
    os.write(send, b'get": 3}\n')
    assert listener.receive()
    assert listener.facts == {"run": "a", "budget": 3}


def test_more_than_one_read_takes_arrives(ends: Ends) -> None:
    pipe, listener, _ = ends
    pipe.tell(text="x" * 40_000)
    os.set_blocking(listener.fd, False)
    pipe.tell(other="y" * 20_000)
    assert listener.receive()
    assert {name: len(text) for name, text in listener.facts.items()} == {
        "text": 40_000, "other": 20_000
    }  # fmt: skip


def test_the_end_of_the_pipe_is_seen(ends: Ends) -> None:
    pipe, listener, send = ends
    pipe.tell(run="a")
    os.close(send)
    assert listener.receive()
    assert listener.facts == {"run": "a"}
    assert not listener.is_open


class Clock:
    """The clock of the pipe, in whole seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000
        monkeypatch.setattr(heartbeat_pipe, "HEARTBEAT_SECONDS", HEARTBEAT_SECONDS)
        monkeypatch.setattr(heartbeat_pipe, "time", SimpleNamespace(monotonic=lambda: self.now))


HEARTBEAT_SECONDS = 4


def test_heartbeats_are_few(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pipe, listener, _ = ends
    times = []
    for clock.now in range(1000, 1000 + 5 * HEARTBEAT_SECONDS // 2 + 1):
        pipe.heartbeat()
        if listener.receive():
            times.append(clock.now)
    assert times == [1000, 1000 + HEARTBEAT_SECONDS, 1000 + 2 * HEARTBEAT_SECONDS]


def test_what_was_printed_is_told_rarely_and_is_no_progress(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    pipe, listener, _ = ends
    pipe.printed()
    clock.now += 1
    pipe.printed()
    assert not listener.receive()
    assert listener.facts["printed_at"] == 1000
    clock.now += HEARTBEAT_SECONDS - 2
    pipe.printed()
    clock.now += 1
    assert not listener.receive() and listener.facts["printed_at"] == 1000
    pipe.printed()
    pipe.heartbeat()
    assert listener.receive()
    assert listener.facts["printed_at"] == 1000 + HEARTBEAT_SECONDS


def test_nobody_who_listens_is_no_hindrance(ends: Ends) -> None:
    pipe, listener, _ = ends
    for _ in range(3000):
        pipe.tell(text="x" * 100)  # more than a pipe holds
    os.close(listener.fd)
    pipe.tell(text="to nobody")
    pipe._sent = float("-inf")
    pipe.heartbeat()


METHODS = [name for name in vars(Reporter) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_each_report_is_passed_on_and_is_progress(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(heartbeat_pipe, "HEARTBEAT_SECONDS", 0.0)
    pipe, listener, _ = ends
    inner = Mock(spec=Reporter)
    parameters = list(signature(getattr(Reporter, name)).parameters.values())[1:]
    given: dict[str, Any] = {p.name: Mock() for p in parameters}
    if name == "planned":
        given["run"], given["predicted"].need.least_enough = "a run", 7
    if name == "began":
        given["budget"] = 9
    by_place = [given[p.name] for p in parameters if p.kind != p.KEYWORD_ONLY]
    by_name = {p.name: given[p.name] for p in parameters if p.kind == p.KEYWORD_ONLY}
    getattr(HeartbeatReporter(inner, pipe), name)(*by_place, **by_name)
    getattr(inner, name).assert_called_once_with(*by_place, **by_name)
    assert listener.receive() or name == "done"
    told = {"planned": {"run": "a run", "floor": 7}, "began": {"budget": 9}}
    assert listener.facts == told.get(name, {})


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP"])
def test_a_fault_is_a_crash_whatever_the_kernel_killed(name: str) -> None:
    assert {cause_of(signal.Signals[name], killed) for killed in (True, False)} == {"crash"}


def test_only_sigkill_is_the_kernels() -> None:
    assert cause_of(signal.SIGKILL, True) == "oom"
    assert cause_of(signal.SIGKILL, False) == "killed"
    assert cause_of(signal.SIGTERM, True) == "killed"


@pytest.mark.parametrize(
    ("death", "event", "facts", "text"),
    [
        (
            WorkerExit(7, "oom", 9, budget=5_000_000),
            "worker_killed",
            {"cause": "oom", "signal": "SIGKILL", "budget": 5_000_000},
            "memory ran out (its budget was 5 MB)",
        ),
        (
            WorkerExit(7, "killed", 64),
            "worker_killed",
            {"cause": "killed", "signal": "SIGRTMAX"},
            "killed by SIGRTMAX, which another process sent",
        ),
        (
            WorkerExit(7, "killed", 50),
            "worker_killed",
            {"cause": "killed", "signal": "signal 50"},
            "killed by signal 50,",
        ),
        (
            WorkerExit(7, "crash", 11),
            "worker_crashed",
            {"cause": "crash", "signal": "SIGSEGV"},
            "crashed (SIGSEGV)",
        ),
        (
            WorkerExit(7, "stall", 9, 61.0, ThreadState("D")),
            "worker_stalled",
            {
                "cause": "stall",
                "signal": "SIGKILL",
                "seconds": 61.0,
                "waited_for": "is waiting for a disk or a network filesystem",
            },
            "made no progress for 61 s; it is waiting for a disk",
        ),
    ],
)
def test_a_death_in_words(death: WorkerExit, event: str, facts: object, text: str) -> None:
    assert death.event == event
    assert death.facts() == {"pid": 7, **facts}  # type: ignore[dict-item]
    assert text in str(death)
    assert "(pid 7)" in str(death)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finish a run, and return its ledger."""
    folder = tmp_path_factory.mktemp("merged")
    write_family(folder / "models", {**LLAMA, "num_hidden_layers": 1})
    recipe = "merge_method: passthrough\nmodels: [{model: math}]\n"
    merge(folder / "models", recipe, folder / "out")
    (run,) = RunStore(folder / "out.state").runs()
    return run / "ledger.db"


@pytest.fixture
def ledger(merged: Path, tmp_path: Path) -> Path:
    """Return a ledger with an ended attempt of pid 8, and an open one of pid 7, which is dead."""
    path = Path(shutil.copy(merged, tmp_path))
    with closing(Ledger(path)) as opened:
        for pid in (8, 7):
            facts = {"pid": pid, "host": "h", "boot_id": "b", "budget": 1, "batch_bytes": 1}
            number = opened.attempts.start(facts)
            if pid == 8:
                opened.attempts.end(number, "interrupted", peak_rss=1)
    return path


def attempts(ledger: Path) -> list[tuple[object, ...]]:
    rows = query(ledger, "SELECT pid, outcome, peak_rss, ended FROM attempts WHERE n > 1")
    return [(row["pid"], row["outcome"], row["peak_rss"], row["ended"] is None) for row in rows]


@pytest.mark.parametrize(
    ("cause", "outcome", "kind"),
    [
        ("oom", "oom", "worker_killed"),
        ("killed", "killed", "worker_killed"),
        ("crash", "error", "worker_crashed"),
        ("stall", "killed", "worker_stalled"),
    ],
)
def test_a_death_is_in_the_ledger(ledger: Path, cause: str, outcome: str, kind: str) -> None:
    record_death(ledger, WorkerExit(7, cause, 9), 1000)
    assert attempts(ledger) == [(8, "interrupted", 1, False), (7, outcome, 1000, False)]
    with closing(Ledger(ledger)) as opened:
        [event] = opened.events.all(kind)
    assert event["data"]["pid"] == 7


def test_a_second_signal_is_in_the_ledger(ledger: Path) -> None:
    record_interrupted(ledger, 7, 1000)
    assert attempts(ledger)[1] == (7, "interrupted", 1000, False)
    with closing(Ledger(ledger)) as opened:
        assert not opened.events.all("worker_killed", "worker_crashed", "worker_stalled")
    record_death(ledger, WorkerExit(7, "killed", 9), 2000)
    assert attempts(ledger)[1] == (7, "interrupted", 1000, False), "it had ended"


def test_a_ledger_that_cannot_be_used_is_no_hindrance(tmp_path: Path, ledger: Path) -> None:
    blocks = query(ledger, "SELECT sum(committed_blocks) AS n FROM units")[0]["n"]
    assert committed_blocks(ledger) == blocks > 0
    for damage in (b"", b"no database" * 1000):
        path = tmp_path / "damaged.db"
        path.write_bytes(damage)
        record_death(path, WorkerExit(7, "killed", 9), 1)
        assert committed_blocks(path) == 0
    assert committed_blocks(tmp_path / "none.db") == 0
