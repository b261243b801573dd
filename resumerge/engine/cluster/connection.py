"""The connection to Ray, and the driver's calls to it. Ray is imported only with ``--ray``."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from resumerge.engine.cluster.machines import Machine, TaskRequest
from resumerge.engine.cluster.outcomes import Failed, Outcome
from resumerge.engine.cluster.probe import check_is_ray
from resumerge.engine.cluster.task import ShardTask, run_on_worker
from resumerge.engine.resources.signals import stop_signals
from resumerge.errors import Interrupted, Reason, Resumable
from resumerge.options.cluster import LOCAL_CLUSTER

_NODE_ID = "ray.io/node-id"
"""The label that Ray gives to each node."""

ANSWER_SECONDS = 3.0
"""Seconds for the head to accept a connection, and seconds for it to answer a request."""

INIT_SECONDS = 120
"""The most seconds for which heartbeats are sent while Ray connects or starts a local cluster."""


@contextmanager
def connected(address: str, heartbeat: Callable[[], None]) -> Iterator[Cluster]:
    """Connect to a cluster. A cluster that was started for this run ends with the connection.

    If the process is already connected, its connection is used and stays open.

    Args:
        address: ``HOST:PORT``, ``auto`` for the cluster that this machine belongs to, or ``local``
            to start a cluster on this machine.
        heartbeat: called often during the wait for the cluster, from several threads. If it raises
            in the calling thread, the wait ends.

    Raises:
        Resumable: the cluster does not exist, or does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    import ray

    # The import itself sets the level, so set it afterwards: messages would disturb the progress.
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    if ray.is_initialized():
        yield Cluster()
        return
    old_handlers = {number: signal.getsignal(number) for number in stop_signals()}
    cluster: Cluster | None = None
    print_to_stdstream = ray._private.worker.print_to_stdstream
    # Ray prints messages about workers to stdout, and has no option against that.
    ray._private.worker.print_to_stdstream = lambda *given, **named: None
    try:
        init_options = {"include_dashboard": False} if address == LOCAL_CLUSTER else {}
        try:
            if address != LOCAL_CLUSTER:
                check_is_ray(address, heartbeat)
            with _heartbeats(heartbeat):
                ray.init(address, log_to_driver=False, configure_logging=False, **init_options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise Resumable(
                Reason.CLUSTER,
                f"The Ray cluster at {address} cannot be used: {error}\n"
                "Start it (`ray start --head` on one machine, `ray start --address=HOST:6379` on "
                "the others), with one version of Ray and of Python; then resume.",
            ) from error
        finally:
            _restore(old_handlers)
        yield (cluster := Cluster())
    finally:
        if cluster is None or not cluster.is_lost:
            with suppress(Exception):
                ray.shutdown()
        ray._private.worker.print_to_stdstream = print_to_stdstream
        _restore(old_handlers)


@contextmanager
def _heartbeats(heartbeat: Callable[[], None]) -> Iterator[None]:
    """Send heartbeats from a thread while the context is open, for at most `INIT_SECONDS`."""
    closed = threading.Event()

    def beat() -> None:
        with suppress(Interrupted):  # the main thread handles the signal when Ray returns
            for _ in range(INIT_SECONDS):
                if closed.wait(1.0):
                    return
                heartbeat()

    thread = threading.Thread(target=beat, name="heartbeats of Ray's start", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    """Restore the signal handlers. Ray's handlers would end the process before it commits."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Cluster:
    """The cluster that this process is connected to.

    Attributes:
        is_lost: whether the cluster's head is lost. Ray is then no longer called: a call would wait
            for the head, until Ray ends this process after a minute.
        machines: the nodes that were alive in the head's last answer, with or without processors.
    """

    def __init__(self) -> None:
        self.is_lost = False
        self.machines: list[Machine] = []
        self._asking: threading.Thread | None = None
        self._has_answered = False
        self.answers(10 * ANSWER_SECONDS)

    def answers(self, seconds: float = ANSWER_SECONDS) -> bool:
        """Update `machines` from the head, and return whether it answers within `seconds`.

        The request runs in a thread, because Ray waits for ever for a head that hangs.
        """
        if self._asking is None:
            self._has_answered = False
            self._asking = threading.Thread(target=self._ask, name="machines", daemon=True)
            self._asking.start()
        self._asking.join(seconds)
        if not self._asking.is_alive():
            self._asking = None
        return self._has_answered

    def _ask(self) -> None:
        import ray

        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        with suppress(Exception):
            # Connect first: if nothing listens at the address, Ray would retry for a long time.
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
            live_nodes = [node for node in ray.nodes() if node["Alive"]]
            self.machines = [Machine(node["NodeID"], node["Resources"]) for node in live_nodes]
            self._has_answered = True

    def submit(self, task: ShardTask, request: TaskRequest, avoid: Collection[str] = ()) -> Any:
        """Submit a task, and return the future of its outcome, an `ObjectRef` of Ray.

        Args:
            task: the task; it is pickled, and its id becomes the name that Ray shows.
            request: the resources to reserve for the task.
            avoid: ids of the nodes that the task must not run on.
        """
        import ray

        ray_options = request.options() | {"max_retries": 0, "name": task.id}
        if avoid:
            ray_options["label_selector"] = {_NODE_ID: f"!in({','.join(sorted(avoid))})"}
        return ray.remote(run_on_worker).options(**ray_options).remote(task)

    def finished(self, running: Collection[Any], seconds: float) -> list[Any]:
        """Wait up to `seconds` until a task ends, and return the futures of ended tasks."""
        import ray

        ended_futures, _ = ray.wait(list(running), num_returns=1, timeout=seconds)
        return list(ended_futures)

    def outcome(self, future: Any) -> Outcome:
        """Return the outcome of a task that has ended."""
        import ray
        from ray import exceptions

        try:
            outcome: Outcome = ray.get(future)
            return outcome
        except exceptions.OutOfMemoryError as error:
            return Failed(None, Reason.OOM, _first_line(error))
        except exceptions.RayTaskError as error:
            return Failed(None, Reason.ERROR, _first_line(error.cause or error))
        except exceptions.RayError as error:
            return Failed(None, Reason.LOST, _first_line(error))

    def cancel(self, future: Any) -> None:
        """Cancel a task. Its worker is killed if Ray can reach it."""
        import ray

        if self.is_lost:
            return
        with suppress(Exception):
            ray.cancel(future, force=True)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
