"""The errors for responses of bucket servers, for every protocol.

Messages contain nothing of a request's headers or address, because these can contain secrets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from resumerge.errors import StoreError
from resumerge.retry import UNSUPPORTED_STATUSES, is_temporary_status

PROXY_FIX = (
    "a proxy or the login page of a network may answer in its place: open the network, or check "
    "the endpoint"
)

REDIRECTS = (301, 302, 303, 307)

_latest = threading.local()
"""The latest response to this thread: `text` describes it, `page_status` is its status if it is a
web page, else 0."""


class Changed(Exception):
    """An error: the condition of a request is not met.

    The object exists although it must not, or it is not the expected version.
    """


class Unsupported(StoreError):
    """An error: the server reports that it does not support the request."""


class Refused(StoreError):
    """An error: the server refused a request with a code that has no special handling."""


class Conflict(StoreError):
    """An error: another write of the same object is in progress, and nothing was written."""


class Advice(NamedTuple):
    """The advice in messages about one cloud.

    Args:
        credentials: the fix if access is denied.
        place: the fix if the bucket is missing.
    """

    credentials: str
    place: str


def refusal(
    advice: Advice,
    bucket: str,
    status: int,
    code: str = "",
    name: str = "",
    retry_after: str = "",
    meaning: int | None = None,
) -> Exception:
    """Return the error for an error response of the server.

    Args:
        advice: the fixes for this cloud, of which the message names one.
        bucket: the bucket's name, for messages.
        status: the HTTP status of the response; 0 if it states none.
        code: the server's own error code, for messages.
        name: the name of the object that is read; empty for other requests. With a name, a missing
            object is a `FileNotFoundError`, not a `StoreError`.
        retry_after: the value of the header Retry-After; empty if missing.
        meaning: the HTTP status to use in place of `status`, from the code; None for `status`.
    """
    status_and_code = f"HTTP {status}" + (f", {code}" if code and code != str(status) else "")
    status = meaning or status
    if status == 412:
        return Changed()
    if status in UNSUPPORTED_STATUSES:
        return Unsupported(
            f"The server of the bucket {bucket} lacks a request: {status_and_code}", denied=True
        )
    if status == 409:
        return Conflict(f"Another write to the bucket {bucket} is in progress: {status_and_code}")
    if is_temporary_status(status):
        return StoreError(
            f"The server of the bucket {bucket} fails: {status_and_code}",
            retry_after=float(retry_after) if retry_after.isdigit() else 0.0,
        )
    if status == 404 and name:
        return FileNotFoundError(f"{bucket} has no {name}")
    if status in (401, 403):
        is_of_others = getattr(_latest, "page_status", 0) == status
        return not_understood(bucket) if is_of_others else denied(advice, bucket, status_and_code)
    if status in (301, 307, 404):
        return misplaced(advice, bucket, status_and_code)
    return Refused(f"The server of the bucket {bucket} refused a request: {status_and_code}")


def denied(advice: Advice, bucket: str, shown: str) -> StoreError:
    """Return the error for a server that denies access."""
    message = f"The bucket {bucket} denies access: {shown}"
    return StoreError(message, fix=advice.credentials, denied=True)


def misplaced(advice: Advice, bucket: str, shown: str) -> StoreError:
    """Return the error for a bucket that does not exist."""
    message = f"The bucket {bucket} cannot be used: {shown}"
    return StoreError(message, fix=advice.place, denied=True)


def no_credentials(advice: Advice, bucket: str, error: Exception) -> StoreError:
    """Return the error for a library that found no usable credentials."""
    return StoreError(
        f"There are no usable credentials for the bucket {bucket} ({type(error).__name__})",
        fix=advice.credentials,
        denied=True,
    )


def of_network(bucket: str, error: OSError) -> OSError:
    """Return the error to raise for an `OSError` of a request.

    A `StoreError` and an error about a file are returned unchanged. Any other error is taken for a
    failed network.
    """
    if isinstance(error, StoreError | FileNotFoundError) or error.filename:
        return error
    return unreachable(bucket, error)


def unreachable(bucket: str, error: Exception) -> StoreError:
    """Return the error for a failed network.

    The message contains only the type of the error or of its cause, because the text can contain a
    signed address.
    """
    cause = getattr(error, "kwargs", {}).get("error") or error
    return StoreError(
        f"The server of the bucket {bucket} cannot be reached: {type(cause).__name__}"
    )


def note_answer(status: int, headers: Mapping[str, Any], body: bytes | None = None) -> bool:
    """Record a response for the message of `not_understood`.

    Args:
        status: the HTTP status, of a success or of an error.
        headers: the response's headers, a mapping that ignores case.
        body: the beginning of the body, for servers that declare plain text as HTML; None to rely
            on the headers.

    Returns:
        whether the response is a web page.
    """
    is_web_page = is_page(headers) and (body is None or b"<html" in body.lower())
    _latest.page_status = status if is_web_page else 0
    content_type = str(headers.get("Content-Type") or "").partition(";")[0].strip()
    host = urlsplit(str(headers.get("Location") or "")).hostname
    description = (
        f"HTTP {status}"
        + (f" to {host}" if host else "")
        + (f", {content_type}" if content_type else "")
    )
    _latest.text = description
    return is_web_page


def not_understood(bucket: str, why: str = "") -> StoreError:
    """Return the error for a response that does not follow the cloud's protocol.

    The message describes the response that `note_answer` recorded last in this thread.

    Args:
        bucket: the bucket's name, for the message.
        why: the fault, if that description does not show it; else empty.
    """
    fault = "; ".join(filter(None, [why, getattr(_latest, "text", "")]))
    return StoreError(
        f"What answers for the server of the bucket {bucket} does not speak its protocol: {fault}",
        fix=PROXY_FIX,
    )


def is_page(headers: Mapping[str, Any]) -> bool:
    """Return whether a response is a web page by its headers; an object can also be a web page."""
    return str(headers.get("Content-Type") or "").lower().startswith("text/html")


@contextmanager
def understood(bucket: str) -> Iterator[None]:
    """Translate the errors with which code fails on a response that breaks the protocol.

    Raises:
        StoreError: the library or its caller failed, for example because a field is missing.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise not_understood(bucket, type(error).__name__) from None
