"""Calls of huggingface_hub for a store: with a timeout, without output, without long retries.

By default, the library waits for a response without a limit, and sleeps as long as a busy Hub asks.
It also prints messages that contain signed addresses.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from resumerge.errors import InputError, Reason, Resumable, ResumergeError
from resumerge.hub.calls import account_in_words, brief, http_error, is_page_of_others, retry_after
from resumerge.mirror.stores.base import StoreError
from resumerge.retry import is_temporary_status
from resumerge.storage import FULL_DISK_ERRNOS

IDLE_TIMEOUT = 60.0
"""The seconds after which a connection that transfers nothing is closed."""


class CommitConflict(StoreError):
    """An error: another commit was faster."""


class NoFile(StoreError):
    """An error: the repo has no such file."""


class NoRepo(StoreError):
    """An error: the repo does not exist, or this account may not read it."""


@dataclass
class Call:
    """The facts about the calls in one `hub_errors` context.

    Args:
        at: the time in the Hub's last response; None before a response, or if it names no time.
    """

    at: datetime | None = None


_call: ContextVar[Call | None] = ContextVar("_call", default=None)
_preparing = threading.Lock()


@contextmanager
def hub_errors(repo: str) -> Iterator[Call]:
    """Translate the errors of huggingface_hub's calls in this context to `StoreError`.

    In this context, the library retries a failing connection for some seconds. It does not retry
    an error that the Hub returned.

    Args:
        repo: the repo's id, for messages.

    Raises:
        StoreError: the Hub cannot be reached, fails or refuses. `CommitConflict`, `NoFile` and
            `NoRepo` are special cases.
    """
    call = Call()
    token = _call.set(call)
    try:
        _prepare()
        yield call
    except StoreError:
        raise
    except ResumergeError as error:
        failure = _of_download(error, repo)
        if failure is None:
            raise
        raise failure from None
    except Exception as error:
        failure = _failure(error, repo)
        if failure is None:
            raise
        raise failure from None  # its causes contain signed addresses
    finally:
        _call.reset(token)


def _failure(error: Exception, repo: str) -> StoreError | None:
    """Return the `StoreError` for an exception of huggingface_hub; None for any other exception."""
    from huggingface_hub import constants
    from huggingface_hub import errors as library_errors

    refusal = http_error(error)
    if (
        refusal is None
        and isinstance(error, OSError)
        and (error.filename or error.errno in FULL_DISK_ERRNOS)
    ):
        return None  # an error of a local file or disk
    if refusal is None:
        # The base class of errors is that of requests or httpx, depending on huggingface_hub's
        # version. The library raises ValueError for a malformed response.
        http_library = library_errors.HfHubHTTPError.__mro__[1]
        if isinstance(error, (OSError, RuntimeError, ValueError, http_library)):
            return StoreError(
                f"The Hub cannot be reached (needed for {repo}): {brief(_first(error))}"
            )
        return None
    status = refusal.response.status_code
    if is_temporary_status(status):
        return StoreError(
            f"The Hub cannot serve {repo} now: HTTP {status}", retry_after=retry_after(error)
        )
    if is_page_of_others(refusal.response):
        return StoreError(
            f"What answers in the place of the Hub (needed for {repo}) sent a web page: HTTP "
            f"{status}",
            fix="a proxy or the login page of a network may be in between: open the network",
        )
    if status in (409, 412):
        return CommitConflict(f"Another commit was made in {repo} at the same time")
    if isinstance(refusal, library_errors.EntryNotFoundError):
        return NoFile(f"A file does not exist in {repo}: {brief(refusal)}")
    # A 403 of the storage behind the Hub means that a signed address has expired; a retry gets a
    # new one.
    is_from_hub = str(refusal.response.url).startswith(constants.ENDPOINT)
    is_missing_repo = isinstance(refusal, library_errors.RepositoryNotFoundError)
    if (status in (401, 403) and is_from_hub) or is_missing_repo:
        error_class = NoRepo if status == 404 else StoreError
        return error_class(
            f"The Hub denied this account access to {repo}: {_words(refusal)} "
            f"({account_in_words()})",
            fix="log in with `hf auth login`, or set HF_TOKEN, with a token that may write to it",
            denied=True,
        )
    return StoreError(f"The Hub refused a request for {repo}: {_words(refusal)}")


def _words(refusal: Any) -> str:
    """Return the status and message of the Hub's response, for messages."""
    message = brief(Exception(refusal.server_message or "")).partition(": ")[2]
    return f"HTTP {refusal.response.status_code}" + (f", {message}" if message else "")


def _of_download(error: ResumergeError, repo: str) -> StoreError | None:
    """Return the `StoreError` for an error of `resumerge.hub`; None for an unrelated error."""
    if isinstance(error, InputError):
        problem_texts = "; ".join(problem.what for problem in error.problems)
        return StoreError(f"The Hub refused a request for {repo}: {problem_texts}", denied=True)
    if isinstance(error, Resumable) and error.reason in (Reason.NETWORK, Reason.SOURCE_UNAVAILABLE):
        return StoreError(error.message.split("\n", 1)[0])
    return None


def _first(error: BaseException) -> BaseException:
    """Return the original error of one that the library has wrapped, possibly more than once."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _prepare() -> None:
    """Configure the library's HTTP client and silence its output.

    This is repeated for every call, because the library sometimes replaces its client.
    """
    import huggingface_hub.hf_api  # noqa: F401, it creates the loggers of all functions used here
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        get_session,
    )

    with _preparing:
        if not are_progress_bars_disabled():
            disable_progress_bars()
        for name in list(logging.root.manager.loggerDict):
            if name.split(".")[0] == "huggingface_hub":
                logger = logging.getLogger(name)
                if _is_silent not in logger.filters:
                    logger.addFilter(_is_silent)
        session: Any = get_session()
        if hasattr(session, "event_hooks"):  # httpx, from huggingface_hub 1.0 on
            hooks = session.event_hooks
            if _look not in hooks["response"]:
                session.event_hooks = {**hooks, "response": [*hooks["response"], _look]}
            if session.timeout.read is None:
                session.timeout = IDLE_TIMEOUT
        elif _look not in session.hooks["response"]:  # requests
            session.hooks["response"].append(_look)
            session.request = functools.partial(session.request, timeout=IDLE_TIMEOUT)


def _is_silent(record: logging.LogRecord) -> bool:
    return _call.get() is None


def _look(response: Any, *args: Any, **kwargs: Any) -> None:
    """Record the time of a response; raise its temporary error before the library retries it."""
    from huggingface_hub.utils import hf_raise_for_status

    call = _call.get()
    if call is None:
        return
    try:
        call.at = parsedate_to_datetime(response.headers.get("Date", ""))
    except (TypeError, ValueError):
        call.at = None
    if is_temporary_status(response.status_code):
        hf_raise_for_status(response)
