"""The small process that starts the worker, watches it, and starts it again when it was killed."""

from resumerge.supervisor.heartbeat_pipe import Link
from resumerge.supervisor.supervisor import Orders, supervise

__all__ = ["Link", "Orders", "supervise"]
