"""The supervisor: a small process that starts the worker, watches it, and restarts it."""

from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe
from resumerge.supervisor.supervisor import WorkerSpec, supervise

__all__ = ["HeartbeatPipe", "WorkerSpec", "supervise"]
