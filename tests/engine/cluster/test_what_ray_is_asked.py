"""Promise: Ray gets the requests that the driver means; its answers and errors are reported."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import HANGS_SECONDS

from resumerge.engine.cluster import connection, probe
from resumerge.engine.cluster.connection import Cluster, connected
from resumerge.engine.cluster.machines import Machine, TaskRequest
from resumerge.engine.cluster.outcomes import Failed
from resumerge.engine.cluster.probe import check_is_ray
from resumerge.engine.cluster.task import run_on_worker
from resumerge.errors import Interrupted, Resumable


class RayError(Exception):
    pass


class OutOfMemoryError(RayError):
    pass


class RayTaskError(RayError):
    cause: Exception | None = None


class Ray:
    """A module `ray` that keeps its calls, and answers as a test sets."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.calls: list[tuple[Any, ...]] = []
        self.answer: Any = None
        self.known = [
            {"NodeID": "a", "Alive": True, "Resources": {"CPU": 2.0}},
            {"NodeID": "b", "Alive": False, "Resources": {"CPU": 4.0}},
        ]
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.initialized = False
        self.prints = print
        self.exceptions = SimpleNamespace(
            RayError=RayError, OutOfMemoryError=OutOfMemoryError, RayTaskError=RayTaskError
        )
        self._private = SimpleNamespace(worker=SimpleNamespace(print_to_stdstream=self.prints))

    def is_initialized(self) -> bool:
        return self.initialized

    def init(self, *given: Any, **named: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.calls.append(("init", given, named))
        self._answered()

    def shutdown(self) -> None:
        self.calls.append(("shutdown",))

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=f"127.0.0.1:{self.port}")

    def nodes(self) -> list[dict[str, Any]]:
        self.may_answer.wait(HANGS_SECONDS)
        return self.known

    def remote(self, function: object) -> Any:
        def submit(task: Any) -> str:
            self.calls.append((function, options, task))
            return "future"

        options: dict[str, Any] = {}
        of = SimpleNamespace(remote=submit)
        return SimpleNamespace(options=lambda **given: options.update(given) or of)

    def wait(self, *given: Any, **named: Any) -> tuple[list[int], list[int]]:
        self.calls.append((*given, named))
        return [2], [1]

    def get(self, future: object) -> Any:
        return self._answered()

    def cancel(self, *given: Any, **named: Any) -> None:
        self.calls.append((*given, named))
        self._answered()

    def _answered(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def ray(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Ray:
    found = Ray(listening.getsockname()[1])
    monkeypatch.setitem(sys.modules, "ray", found)  # type: ignore[arg-type]
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    return found


def test_the_machines_are_those_that_are_alive(ray: Ray) -> None:
    cluster = Cluster()
    assert cluster.machines == [Machine("a", {"CPU": 2.0})] and not cluster.is_lost
    ray.known[1]["Alive"] = True
    assert cluster.answers(HANGS_SECONDS) and [m.id for m in cluster.machines] == ["a", "b"]


def test_a_head_where_nothing_listens_does_not_answer(ray: Ray, listening: socket.socket) -> None:
    """The cluster keeps the machines of the head's last answer."""
    cluster = Cluster()
    listening.close()
    ray.known = []
    assert not cluster.answers(HANGS_SECONDS)
    assert [machine.id for machine in cluster.machines] == ["a"]


def test_a_head_that_hangs_is_asked_once_until_it_answers(ray: Ray) -> None:
    def asking() -> int:
        return [thread.name for thread in threading.enumerate()].count("machines")

    cluster = Cluster()
    ray.may_answer.clear()
    assert not cluster.answers(0.01) and not cluster.answers(0.01)
    assert asking() == 1
    ray.may_answer.set()
    assert cluster.answers(HANGS_SECONDS) and cluster.answers(HANGS_SECONDS)
    assert asking() == 0


def test_a_task_is_submitted_once_with_what_it_asks_for(ray: Ray) -> None:
    cluster, task = Cluster(), SimpleNamespace(id="shard0-1")
    request = TaskRequest(2, 5, {"fast": 1})
    given: Any = task
    assert cluster.submit(given, request) == "future"
    cluster.submit(given, request, {"b", "a"})
    common = {**request.options(), "max_retries": 0, "name": "shard0-1"}
    avoiding = {**common, "label_selector": {"ray.io/node-id": "!in(a,b)"}}
    assert ray.calls == [(run_on_worker, common, task), (run_on_worker, avoiding, task)]


def test_the_first_tasks_to_end_are_waited_for(ray: Ray) -> None:
    assert Cluster().finished({1: "x", 2: "y"}, 0.5) == [2]
    assert ray.calls == [([1, 2], {"num_returns": 1, "timeout": 0.5})]


def of_task(cause: Exception | None) -> RayTaskError:
    error = RayTaskError("of Ray")
    error.cause = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (OutOfMemoryError("\n  \nkilled\nmore"), "oom", "OutOfMemoryError: killed"),
        (of_task(ValueError("wrong")), "error", "ValueError: wrong"),
        (of_task(None), "error", "RayTaskError: of Ray"),
        (RayError(""), "lost", "RayError: "),
    ],
)
def test_what_ends_a_worker_is_a_failure_of_its_task(
    ray: Ray, error: Exception, reason: str, message: str
) -> None:
    ray.answer = error
    found = Cluster().outcome("future")
    assert isinstance(found, Failed) and found.node is None
    assert (found.reason, found.message) == (reason, message)


def test_a_task_that_comes_back_says_what_became_of_it(ray: Ray) -> None:
    ray.answer = "finished"
    assert Cluster().outcome("future") == "finished"  # type: ignore[comparison-overlap]


def test_a_task_is_ended_unless_its_cluster_is_lost(ray: Ray) -> None:
    """A call of `ray.cancel` would wait for the lost head."""
    cluster = Cluster()
    ray.answer = RayError("it is over already")
    cluster.cancel("one")
    assert ray.calls == [("one", {"force": True})]
    cluster.is_lost = True
    cluster.cancel("other")
    assert len(ray.calls) == 1


# Connecting


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(
        connection, "check_is_ray", lambda address, heartbeat: found.append(address)
    )
    return found


@pytest.mark.parametrize(
    ("address", "first", "options"),
    [("auto", ["auto"], {}), ("local", [], {"include_dashboard": False})],
)
def test_a_connection_ends_and_leaves_signals_and_output_as_they_were(
    ray: Ray, asked: list[str], address: str, first: list[str], options: dict[str, object]
) -> None:
    """Ray's own signal handlers would end the process before it commits."""
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    worker = ray._private.worker
    with connected(address, lambda: None) as cluster:
        assert cluster.machines and asked == first
        [(_, given, named)] = ray.calls
        assert given == (address,)
        assert named == {"log_to_driver": False, "configure_logging": False, **options}
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
        assert worker.print_to_stdstream is not ray.prints
        assert worker.print_to_stdstream("what happens to workers", to="stdout") is None
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert ray.calls[1:] == [("shutdown",)] and worker.print_to_stdstream is ray.prints


def test_a_cluster_that_is_lost_is_not_spoken_to(ray: Ray, asked: list[str]) -> None:
    with connected("auto", lambda: None) as cluster:
        cluster.is_lost = True
    assert len(ray.calls) == 1


def test_a_connection_of_somebody_else_stays(ray: Ray, asked: list[str]) -> None:
    ray.initialized = True
    with connected("auto", lambda: None) as cluster:
        assert cluster.machines
    assert ray.calls == [] and asked == []


@pytest.mark.parametrize("kind", [ConnectionError, RuntimeError, ValueError, OSError])
def test_a_cluster_that_cannot_be_used_stops_the_run(
    ray: Ray, asked: list[str], kind: type[Exception]
) -> None:
    ray.answer = kind("other version")
    with pytest.raises(Resumable) as stopped, connected("h:1", lambda: None):
        raise AssertionError("it is connected")
    assert stopped.value.reason == "cluster"
    assert "The Ray cluster at h:1 cannot be used: other version" in stopped.value.message
    assert ray.calls[1:] == [("shutdown",)]
    assert ray._private.worker.print_to_stdstream is ray.prints


# Whether it is Ray


def asks(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(probe, "_ASK", script)


def test_a_head_that_answers_is_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [str(probe.START_SECONDS), str(probe.ANSWER_SECONDS)]
    asks(monkeypatch, f"import sys; sys.exit(sys.argv[1:] != {['h:1', *seconds]})")
    beats: list[int] = []
    check_is_ray("h:1", lambda: beats.append(1))
    assert beats


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "import sys; print('a\\nno head there\\n', file=sys.stderr); sys.exit(1)",
            "no head there",
        ),
        ("import sys; sys.exit(4)", "exit code 4"),
    ],
)
def test_a_head_that_refuses_says_why(
    monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    asks(monkeypatch, script)
    with pytest.raises(ConnectionError) as refused:
        check_is_ray("h:1", lambda: None)
    assert str(refused.value) == said


def test_what_is_no_head_is_given_up_by_its_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGALRM)")
    with pytest.raises(Resumable, match="h:1 is not the head of a Ray cluster") as stopped:
        check_is_ray("h:1", lambda: None)
    assert stopped.value.reason == "cluster"


def test_a_stop_ends_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asks is dead when the stop is raised."""
    asks(monkeypatch, f"import time; time.sleep({HANGS_SECONDS})")
    beats = iter(range(2))

    def heartbeat() -> None:
        if next(beats) == 1:
            raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(probe, "_WAIT_SECONDS", 0.01)
    spawn: Callable[..., Any] = probe.subprocess.Popen
    began: list[Any] = []

    def popen(*given: Any, **named: Any) -> Any:
        began.append(spawn(*given, **named))
        return began[-1]

    monkeypatch.setattr(probe.subprocess, "Popen", popen)
    with pytest.raises(Interrupted):
        check_is_ray("h:1", heartbeat)
    assert began[0].returncode == -signal.SIGKILL
