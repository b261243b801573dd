"""Calling something again that fails for a moment: the pauses grow, and the time is limited."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from resumerge.errors import Reason, Resumable, ResumergeError

T = TypeVar("T")

_log = logging.getLogger(__name__)

UNSUPPORTED_STATUSES = (501, 505)
"""The statuses of HTTP by which a server says that it does not support a request."""


def is_temporary_status(status: int) -> bool:
    """Return whether a request that was answered with a status of HTTP may succeed later.

    The failure is a server's or a proxy's then, and passes by itself. Proxies have statuses of
    their own, like Cloudflare's 520 to 530.
    """
    return status in (408, 429) or (status >= 500 and status not in UNSUPPORTED_STATUSES)


@dataclass(frozen=True)
class Backoff:
    """The pauses between retries, and their limits.

    Args:
        first: the first pause in seconds; each further one is twice as long.
        longest: the longest pause in seconds.
        seconds: no pause begins later than so many seconds after the first call.
        retries: the number of calls after the first one, or after the last one with progress.
        longest_asked: a server that asks for a longer pause, in seconds, is not called again.
    """

    first: float
    longest: float
    seconds: float = math.inf
    retries: float = math.inf
    longest_asked: float = math.inf


def retry(
    call: Callable[[], T],
    backoff: Backoff,
    *,
    is_temporary: Callable[[Exception], bool] = lambda error: isinstance(error, OSError),
    retry_after: Callable[[Exception], float] = lambda error: getattr(error, "retry_after", 0.0),
    progress: Callable[[], int] = lambda: 0,
    sleep: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Call a function until it succeeds, or the backoff allows no further call.

    Args:
        call: the function; it must be safe to repeat.
        backoff: the pauses, and their limits.
        is_temporary: returns whether an error may go away by itself; called once for each error.
        retry_after: returns the seconds that the server asks to wait, from the error.
        progress: returns a number that grows when a failed call achieved something; then the pauses
            begin again with the first one.
        sleep: waits for so many seconds, `time.sleep` by default; an exception that it raises ends
            the retries.
        clock: returns seconds, monotonic.

    Returns:
        the result of the call.

    Raises:
        Exception: the last error of the call.
    """
    began, achieved = clock(), progress()
    pause, left = backoff.first, backoff.retries
    while True:
        try:
            return call()
        except Exception as error:
            if not is_temporary(error):
                raise
            if progress() > achieved:
                pause, left, achieved = backoff.first, backoff.retries, progress()
            asked = retry_after(error)
            late = clock() - began + asked > backoff.seconds
            if late or left <= 0 or asked > backoff.longest_asked:
                raise
            seconds = max(pause, asked)
            _log.info("retrying in %.1f s: %s", seconds, error)
        left, pause = left - 1, min(2 * pause, backoff.longest)
        (sleep or time.sleep)(seconds)


def retry_explained(
    call: Callable[[], T],
    explain: Callable[[Exception], ResumergeError | None],
    backoff: Backoff,
    *,
    retry_after: Callable[[BaseException], float] = lambda e: getattr(e, "retry_after", 0.0),
    progress: Callable[[], int] = lambda: 0,
    sleep: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Call a function until it succeeds, where its errors are explained to the user.

    Args:
        call: the function; it must be safe to repeat.
        explain: returns the error to raise for an exception; None if that is raised as it is. A
            `Resumable` for `Reason.NETWORK` or `Reason.MIRROR` is retried.
        backoff: the pauses, and their limits.
        retry_after: returns the seconds that the server asks to wait, from the exception of the
            call.
        progress: as for `retry`.
        sleep: as for `retry`.
        clock: as for `retry`.

    Returns:
        the result of the call.

    Raises:
        ResumergeError: the explanation of the last exception.
    """
    failure: ResumergeError | None = None

    def explained() -> T:
        nonlocal failure
        try:
            return call()
        except Exception as error:
            failure = explain(error)
            if failure is None:
                raise
            raise failure from error

    def is_temporary(error: Exception) -> bool:
        if error is not failure:  # the call itself says what is to be done
            return False
        return isinstance(error, Resumable) and error.reason in (Reason.NETWORK, Reason.MIRROR)

    return retry(
        explained,
        backoff,
        is_temporary=is_temporary,
        retry_after=lambda error: retry_after(error.__cause__ or error),
        progress=progress,
        sleep=sleep,
        clock=clock,
    )
