"""Retries of calls that fail for a moment, with growing pauses and a time limit."""

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
"""The HTTP statuses for a request that the server does not support."""


def is_temporary_status(status: int) -> bool:
    """Return whether a request that failed with an HTTP status may succeed later.

    Such a failure of a server or a proxy is temporary. Proxies have additional statuses, like
    Cloudflare's 520 to 530.
    """
    return status in (408, 429) or (status >= 500 and status not in UNSUPPORTED_STATUSES)


@dataclass(frozen=True)
class Backoff:
    """The pauses between retries, and their limits.

    Args:
        first: the first pause in seconds; each further pause is twice as long.
        longest: the longest pause in seconds, unless a server asks for a longer one.
        seconds: the time limit in seconds after the first call. No pause begins later, and a pause
            that a server asks for must end earlier.
        retries: the most calls after the first call, or after the last call that made progress.
        longest_asked: the longest pause in seconds that a server may ask for; if it asks for more,
            it is not called again.
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
    """Call a function until it succeeds or the backoff allows no further call.

    Args:
        call: the function; it must be safe to repeat.
        backoff: the pauses, and their limits.
        is_temporary: returns whether an error may be temporary; called once for each error.
        retry_after: returns the seconds that the server asks to wait, from the error.
        progress: returns a number that grows when a failed call made progress; the pauses then
            start over with the first pause.
        sleep: waits for a number of seconds, `time.sleep` by default; an exception that it raises
            ends the retries.
        clock: returns seconds, monotonic.

    Returns:
        the result of the call.

    Raises:
        Exception: the last error of the call.
    """
    start_time, last_progress = clock(), progress()
    next_pause, retries_left = backoff.first, backoff.retries
    while True:
        try:
            return call()
        except Exception as error:
            if not is_temporary(error):
                raise
            if progress() > last_progress:
                next_pause, retries_left, last_progress = backoff.first, backoff.retries, progress()
            requested_seconds = retry_after(error)
            is_too_late = clock() - start_time + requested_seconds > backoff.seconds
            if is_too_late or retries_left <= 0 or requested_seconds > backoff.longest_asked:
                raise
            seconds = max(next_pause, requested_seconds)
            _log.info("retrying in %.1f s: %s", seconds, error)
        retries_left, next_pause = retries_left - 1, min(2 * next_pause, backoff.longest)
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
    """Call a function like `retry`, and explain its errors to the user.

    Args:
        call: the function; it must be safe to repeat.
        explain: returns the error to raise for an exception; None to raise the exception unchanged.
            A `Resumable` with `Reason.NETWORK` or `Reason.MIRROR` is retried.
        backoff: the pauses, and their limits.
        retry_after: returns the seconds that the server asks to wait, from the exception of the
            call.
        progress: as for `retry`.
        sleep: as for `retry`.
        clock: as for `retry`.

    Returns:
        the result of the call.

    Raises:
        ResumergeError: the last exception, explained.
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
        if error is not failure:  # `explain` returned None
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
