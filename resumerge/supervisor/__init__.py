"""The small process that starts the worker, watches it, and starts it again when it was killed."""

from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe
from resumerge.supervisor.supervisor import WorkerSpec, supervise

__all__ = ["HeartbeatPipe", "WorkerSpec", "supervise"]
