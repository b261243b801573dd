"""Calls of huggingface_hub for a store: with a timeout, without output, without long retries.

Without this, the library waits for a response without a limit, sleeps for as long as a busy Hub
asks, and prints about it, with signed addresses.
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
from resumerge.hub.client import account_in_words, brief, http_error, is_page_of_others, retry_after
from resumerge.mirror.stores.base import StoreError
from resumerge.retry import is_temporary_status
from resumerge.storage import DISK_FULL

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
    """The facts about a call.

    Args:
        at: the Hub's clock at its last response; None if there is none.
    """

    at: datetime | None = None


_call: ContextVar[Call | None] = ContextVar("_call", default=None)
_preparing = threading.Lock()


@contextmanager
def hub_errors(repo: str) -> Iterator[Call]:
    """Translate the errors of calls of huggingface_hub about a repo, made in this context.

    The library retries a connection that fails for some seconds, and no error of the Hub.

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
    """Return the error that an exception of huggingface_hub means; None if it is a bug of ours."""
    from huggingface_hub import constants
    from huggingface_hub import errors as library_errors

    refusal = http_error(error)
    if (
        refusal is None
        and isinstance(error, OSError)
        and (error.filename or error.errno in DISK_FULL)
    ):
        return None  # a file or a disk of this machine
    if refusal is None:
        # The error class of requests or httpx, by huggingface_hub's version. A ValueError is a
        # response that the library does not understand.
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
    by_hub = str(refusal.response.url).startswith(constants.ENDPOINT)
    missing = isinstance(refusal, library_errors.RepositoryNotFoundError)
    if (status in (401, 403) and by_hub) or missing:
        kind = NoRepo if status == 404 else StoreError
        return kind(
            f"The Hub denied this account access to {repo}: {_words(refusal)} "
            f"({account_in_words()})",
            fix="log in with `hf auth login`, or set HF_TOKEN, with a token that may write to it",
            denied=True,
        )
    return StoreError(f"The Hub refused a request for {repo}: {_words(refusal)}")


def _words(refusal: Any) -> str:
    """Return the status and message of the Hub's response."""
    words = brief(Exception(refusal.server_message or "")).partition(": ")[2]
    return f"HTTP {refusal.response.status_code}" + (f", {words}" if words else "")


def _of_download(error: ResumergeError, repo: str) -> StoreError | None:
    """Return the `StoreError` that an error of `resumerge.hub` means; None for other errors."""
    if isinstance(error, InputError):
        found = "; ".join(problem.what for problem in error.problems)
        return StoreError(f"The Hub refused a request for {repo}: {found}", denied=True)
    if isinstance(error, Resumable) and error.reason in (Reason.NETWORK, Reason.SOURCE_UNAVAILABLE):
        return StoreError(error.message.split("\n", 1)[0])
    return None


def _first(error: BaseException) -> BaseException:
    """Return the error that the library has wrapped."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _prepare() -> None:
    """Set up the library's HTTP client, which it sometimes replaces, and silence its output."""
    import huggingface_hub.hf_api  # noqa: F401, it creates the loggers of everything that is called
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
    """Raise the error of a response here, before the library sleeps and retries."""
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
