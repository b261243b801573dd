"""Calls of huggingface_hub as a mirror makes them: bounded in time, silent, one failure at a time.

Left alone, the library waits for ever for an answer that does not come, waits itself for as long
as a busy Hub asks it to, and tells the terminal about it, with signed addresses.
"""

from __future__ import annotations

import errno
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

from resumerge.errors import InputError, Resumable, ResumergeError
from resumerge.hub.client import account, brief, http_error, is_transient, retry_after
from resumerge.mirror.stores.base import StoreError

SILENCE = 60.0
"""Seconds in which nothing comes and nothing goes: the connection is given up."""


class Conflict(StoreError):
    """Somebody else's commit came first."""


class Gone(StoreError):
    """The repo has no such file."""


class NoRepo(StoreError):
    """There is no such repo, or none that this account is let know of."""


@dataclass
class Call:
    """What is known of a call that is being made.

    Args:
        at: the Hub's clock at its last answer.
    """

    at: datetime | None = None


_call: ContextVar[Call | None] = ContextVar("_call", default=None)
_preparing = threading.Lock()


@contextmanager
def calling(repo: str) -> Iterator[Call]:
    """Within, huggingface_hub is called for a repo, in this thread.

    A network that fails is tried again by the library for some seconds; a Hub that fails is not.

    Raises:
        PlaceError: the Hub cannot be reached, fails, or refuses; `Conflict` and `Gone` are two
            of its reasons.
    """
    call = Call()
    token = _call.set(call)
    try:
        _prepare()
        yield call
    except StoreError:
        raise
    except ResumergeError as error:
        told = _told(error, repo)
        if told is None:
            raise
        raise told from None
    except Exception as error:
        failure = _failure(error, repo)
        if failure is None:
            raise
        raise failure from None  # its causes have signed addresses in them
    finally:
        _call.reset(token)


def _failure(error: Exception, repo: str) -> StoreError | None:
    """What an exception out of huggingface_hub means; None if it is a bug of ours."""
    from huggingface_hub import constants
    from huggingface_hub import errors as hub_errors

    refusal = http_error(error)
    if (
        refusal is None
        and isinstance(error, OSError)
        and (error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT))
    ):
        return None  # a file, or a disk, of this machine
    if refusal is None:
        # requests' or httpx's, by huggingface_hub's version. A ValueError is an answer that the
        # library does not understand.
        http_library = hub_errors.HfHubHTTPError.__mro__[1]
        if isinstance(error, (OSError, RuntimeError, ValueError, http_library)):
            return StoreError(f"The Hub cannot be reached for {repo}: {brief(_first(error))}")
        return None
    status = refusal.response.status_code
    if is_transient(status):
        return StoreError(
            f"The Hub does not answer for {repo}: HTTP {status}", retry_after=retry_after(error)
        )
    if status in (409, 412):
        return Conflict(f"Another commit was made in {repo} at the same time")
    if isinstance(refusal, hub_errors.EntryNotFoundError):
        return Gone(f"A file is not, or no more, in {repo}: {brief(refusal)}")
    # The store's 403 says that a signed address has grown too old, and the next try gets new ones.
    by_hub = str(refusal.response.url).startswith(constants.ENDPOINT)
    if (status in (401, 403) and by_hub) or isinstance(refusal, hub_errors.RepositoryNotFoundError):
        kind = NoRepo if status == 404 else StoreError
        return kind(
            f"The Hub does not let this account work in {repo}: {_said(refusal)} ({account()})",
            fix="log in with `hf auth login`, or set HF_TOKEN, with a token that may write there",
            denied=True,
        )
    return StoreError(f"The Hub refuses a request for {repo}: {_said(refusal)}")


def _said(refusal: Any) -> str:
    """Status and words of the Hub's answer."""
    words = brief(Exception(refusal.server_message or "")).partition(": ")[2]
    return f"HTTP {refusal.response.status_code}" + (f", {words}" if words else "")


def _told(error: ResumergeError, repo: str) -> StoreError | None:
    """The same of what the downloader of sources has understood already; None of other things."""
    if isinstance(error, InputError):
        found = "; ".join(problem.what for problem in error.problems)
        return StoreError(f"The Hub refuses a request for {repo}: {found}", denied=True)
    if isinstance(error, Resumable) and error.reason in ("network", "source_unavailable"):
        return StoreError(error.message.split("\n", 1)[0])
    return None


def _first(error: BaseException) -> BaseException:
    """What the library has wrapped."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _prepare() -> None:
    """See to the library's client, which it makes anew now and then, and to what it prints."""
    import huggingface_hub.hf_api  # noqa: F401, it brings the loggers of everything that is called
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
                session.timeout = SILENCE
        elif _look not in session.hooks["response"]:  # requests
            session.hooks["response"].append(_look)
            session.request = functools.partial(session.request, timeout=SILENCE)


def _is_silent(record: logging.LogRecord) -> bool:
    return _call.get() is None


def _look(response: Any, *args: Any, **kwargs: Any) -> None:
    """An answer of the Hub; where it fails, the library shall not be the one who waits."""
    from huggingface_hub.utils import hf_raise_for_status

    call = _call.get()
    if call is None:
        return
    try:
        call.at = parsedate_to_datetime(response.headers.get("Date", ""))
    except (TypeError, ValueError):
        call.at = None
    if is_transient(response.status_code):
        hf_raise_for_status(response)
