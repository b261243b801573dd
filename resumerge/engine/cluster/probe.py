"""A probe of an address: does the head of a Ray cluster answer there?

If another program accepts connections at the address, `ray.init` waits for ever, and signals do not
end the wait. So a separate process, with a time limit, connects first.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from resumerge.errors import Reason, Resumable

START_SECONDS, ANSWER_SECONDS = 90, 20
"""The most seconds for the separate process to import Ray, and then for the head to answer."""

_WAIT_SECONDS = 0.2

_ASK = """
import signal, sys
address, start, answer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
signal.alarm(start)
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._raylet import GcsClient
address = canonicalize_bootstrap_address_or_die(address)
signal.alarm(answer)
GcsClient(address=address).get_all_node_info(timeout=answer)
"""
"""The program of the separate process. The alarm ends it even if its parent process has died."""


def check_is_ray(address: str, heartbeat: Callable[[], None]) -> None:
    """Ask the head of a cluster for its nodes.

    Args:
        address: ``HOST:PORT`` or ``auto``.
        heartbeat: called a few times a second. If it raises, the wait ends with that error.

    Raises:
        ConnectionError: nothing listens at the address, or the head refuses the request.
        Resumable: another program listens at the address, or the head hangs.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _ASK, address, str(START_SECONDS), str(ANSWER_SECONDS)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while True:
                heartbeat()
                with suppress(subprocess.TimeoutExpired):
                    _, errors = process.communicate(timeout=_WAIT_SECONDS)
                    break
        finally:
            process.kill()
    if process.returncode == -signal.SIGALRM:
        raise Resumable(
            Reason.CLUSTER,
            f"{address} is not the head of a Ray cluster, or the head hangs. Name the "
            "address that `ray start --head` prints: its port is 6379 unless you choose another "
            "(8265 is the dashboard, 10001 is for Ray's client). If that is the address, the head "
            "hangs: end it with `ray stop`, and start it again. Then resume.",
        )
    if process.returncode != 0:
        error_lines = [line for line in errors.splitlines() if line.strip()]
        raise ConnectionError(error_lines[-1] if error_lines else f"exit code {process.returncode}")
