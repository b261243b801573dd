"""Whether the head of a Ray cluster answers at an address.

`ray.init` waits for ever for whatever accepts a connection and is no Ray, and no signal ends that.
So a process of its own asks first, which is given up after a while.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from resumerge.errors import Reason, Resumable

START_SECONDS, ANSWER_SECONDS = 90, 20
"""The seconds that a process may take to import Ray, and the head to answer then."""

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
"""The alarm ends the process also where its parent is gone."""


def check_is_ray(address: str, heartbeat: Callable[[], None]) -> None:
    """Ask the head of a cluster for its nodes.

    Args:
        address: ``HOST:PORT`` or ``auto``.
        heartbeat: called a few times a second; what it raises ends the waiting.

    Raises:
        ConnectionError: the head refuses, or there is none.
        Resumable: something else listens at the address, or the head hangs.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _ASK, address, str(START_SECONDS), str(ANSWER_SECONDS)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as asking:
        try:
            while True:
                heartbeat()
                with suppress(subprocess.TimeoutExpired):
                    _, said = asking.communicate(timeout=_WAIT_SECONDS)
                    break
        finally:
            asking.kill()
    if asking.returncode == -signal.SIGALRM:
        raise Resumable(
            Reason.CLUSTER,
            f"{address} is not the head of a Ray cluster, or the head hangs. Name the "
            "address that `ray start --head` prints: its port is 6379 unless you choose another "
            "(8265 is the dashboard, 10001 is for Ray's client). If that is the address, the head "
            "hangs: end it with `ray stop`, and start it again. Then resume.",
        )
    if asking.returncode != 0:
        lines = [line for line in said.splitlines() if line.strip()]
        raise ConnectionError(lines[-1] if lines else f"exit code {asking.returncode}")
