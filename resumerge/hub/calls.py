"""Requests to the Hub: retries, and the errors that users see."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from resumerge.errors import Reason, Resumable, ResumergeError, refuse
from resumerge.remote.cache_errors import cache_error, full_cache
from resumerge.remote.file import REQUEST
from resumerge.retry import is_temporary_status, retry_explained

T = TypeVar("T")


def hub_call(do: Callable[[], T], repo: str, revision: str | None) -> T:
    """Make a small request to the Hub, and retry while the network or the Hub fails temporarily.

    Args:
        do: makes the request; it must be safe to repeat.
        repo: the repo's id, for messages.
        revision: the branch or commit, for messages; None for the default branch.

    Raises:
        InputError: the Hub refuses: no such repo, revision or file, or no permission.
        Resumable: ``network`` after the last try; ``disk_full`` without a retry.
    """
    return retry_explained(
        do, lambda error: explain_hub_error(error, repo, revision), REQUEST, retry_after=retry_after
    )


def explain_hub_error(error: Exception, repo: str, revision: str | None) -> ResumergeError | None:
    """Return the error to raise for an exception of huggingface_hub; None if it is a bug."""
    from huggingface_hub import constants
    from huggingface_hub import errors as hub_errors

    refusal = http_error(error)
    if refusal is not None:
        return _refused(refusal, repo, revision)
    if isinstance(error, hub_errors.HFValidationError):
        return refuse(
            "This is neither a local folder nor the name of a Hub repo",
            where=repo,
            expected="an existing folder, or a name like org/name",
            found=repo,
            fix="check the spelling; relative paths are taken from the current folder",
        )
    if isinstance(error, RuntimeError) and "No space left" in str(error):
        return full_cache(repo, constants.HF_HUB_CACHE)  # hf_xet, in Rust, sets no errno
    if cache_failure := cache_error(error, repo, constants.HF_HUB_CACHE):
        return cache_failure
    # The base class of errors is that of requests or httpx, depending on huggingface_hub's version.
    http_library = hub_errors.HfHubHTTPError.__mro__[1]
    if isinstance(error, (OSError, RuntimeError, http_library)):
        return Resumable(
            Reason.NETWORK,
            f"The Hub cannot be reached (needed for {repo}): {brief(error)}\n"
            "Try again when the network is back: downloaded bytes are kept. If every file is in "
            "the cache, --offline needs no network.",
        )
    return None


def http_error(error: BaseException) -> Any:
    """Return the HTTP error among an exception and its causes; None without one."""
    from huggingface_hub.errors import HfHubHTTPError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HfHubHTTPError) and getattr(cause, "response", None) is not None:
            return cause
        cause = cause.__cause__
    return None


def _refused(error: Any, repo: str, revision: str | None) -> ResumergeError:
    from huggingface_hub import errors as hub_errors

    status = error.response.status_code
    where = f"{repo}@{revision}" if revision else repo
    if is_temporary_status(status):
        return Resumable(
            Reason.NETWORK,
            f"The Hub failed to serve {where}: HTTP {status}, after several attempts\nDownloaded "
            "bytes are kept. Resume later.",
        )
    if is_page_of_others(error.response):
        return Resumable(
            Reason.NETWORK,
            f"What answers in the place of the Hub (needed for {where}) sent a web page: HTTP "
            f"{status}\nA proxy or the login page of a network may be in between: open the "
            "network, then resume. Downloaded bytes are kept.",
        )
    if isinstance(error, hub_errors.GatedRepoError):
        return refuse(
            "The model is gated, and this account has no access to it",
            where=where,
            found=f"HTTP {status}, {account_in_words()}",
            fix=f"request access on the page of {repo}, then run `hf auth login` or set HF_TOKEN",
        )
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return refuse(
            "The repo has no such branch, tag or commit",
            where=repo,
            expected="a revision of this repo",
            found=revision or "main",
            fix="check the part after @; if a pinned commit was deleted, --restart starts over "
            "from the branch as it is now",
        )
    if isinstance(error, hub_errors.EntryNotFoundError):
        return refuse(
            "The Hub lists a file of this repo, but does not have it",
            where=where,
            found=f"HTTP {status}",
            fix="try again later, or name another revision",
        )
    if isinstance(error, hub_errors.RepositoryNotFoundError) or status == 404:
        return refuse(
            "The Hub has no such model, or this account has no access to it",
            where=where,
            expected="a public model, or one that the token may read",
            found=f"HTTP {status}, {account_in_words()}",
            fix="check the spelling of org/name; for a private model run `hf auth login` or set "
            "HF_TOKEN",
        )
    if status in (401, 403):
        return refuse(
            "The Hub denied access to the model",
            where=where,
            expected="a token that may read this model",
            found=f"HTTP {status}, {account_in_words()}",
            fix="run `hf auth login` with a valid token that has read access, or set HF_TOKEN",
        )
    return refuse("The Hub refused the request", where=where, found=brief(error))


def is_page_of_others(response: Any) -> bool:
    """Return whether a response is a web page with 401 or 403, which the Hub itself never sends."""
    content_type = str(response.headers.get("Content-Type") or "").lower()
    error_code = response.headers.get("X-Error-Code")
    return (
        response.status_code in (401, 403)
        and content_type.startswith("text/html")
        and not error_code
    )


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def account_in_words() -> str:
    """Return a text about whether requests include a token. The text does not contain the token."""
    from huggingface_hub import get_token

    return "a token was sent" if get_token() else "no token was sent"


def retry_after(error: BaseException) -> float:
    """Return the seconds in the ``Retry-After`` of a failed request; 0 without one."""
    refusal = http_error(error)
    header_text = refusal.response.headers.get("Retry-After", "") if refusal is not None else ""
    if header_text.isdecimal():
        return float(header_text)
    try:
        return max(0.0, parsedate_to_datetime(header_text).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def brief(error: BaseException) -> str:
    """Return one line about an error, without the queries of URLs, which can contain secrets."""
    first_line = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: " + re.sub(r"\?[^\s'\")]*", "", first_line)[:200]
