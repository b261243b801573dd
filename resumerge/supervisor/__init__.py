"""The supervisor: a small process that starts the worker, watches it, and restarts it.

`supervisor` has the loop, and `worker` the child process. `heartbeat_pipe` is the pipe by which the
worker reports progress, and `heartbeat_reporter` sends the reports of a merge through it.
`worker_exit` finds the cause of a worker's death, and `ledger_entries` records it in the ledger.
"""

from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe
from resumerge.supervisor.supervisor import WorkerSpec, supervise

__all__ = ["HeartbeatPipe", "WorkerSpec", "supervise"]
