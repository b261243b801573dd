"""The meaning of a bucket server's answers, whatever the protocol.

Nothing of a request's headers or address is shown.
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
"""The latest answer to this thread, in words."""


class Changed(Exception):
    """An error: the condition of a request is not met.

    The object exists, or is another one than expected.
    """


class Unsupported(StoreError):
    """An error: the server says that it does not know the request."""


class Refused(StoreError):
    """An error: the server refused a request for a reason that is not known here."""


class Conflict(StoreError):
    """An error: another write of the same object is in progress, and nothing was written."""


class Advice(NamedTuple):
    """The advice for a person in one kind of cloud.

    Args:
        credentials: what to do if access is denied.
        place: what to do if the bucket is missing.
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
    """Return the error that an answer of the server means.

    Args:
        advice: what a person can do in this kind of cloud.
        bucket: the bucket's name, for messages.
        status: the status of HTTP.
        code: the server's own word for the error, which is shown.
        name: the name of the object that is read; then a missing one is no `StoreError`.
        retry_after: the header Retry-After.
        meaning: the status that the code stands for, if it says more than the server's status.
    """
    shown = f"HTTP {status}" + (f", {code}" if code and code != str(status) else "")
    status = meaning or status
    if status == 412:
        return Changed()
    if status in UNSUPPORTED_STATUSES:
        return Unsupported(
            f"The server of the bucket {bucket} lacks a request: {shown}", denied=True
        )
    if status == 409:
        return Conflict(f"Another write to the bucket {bucket} is in progress: {shown}")
    if is_temporary_status(status):
        return StoreError(
            f"The server of the bucket {bucket} fails: {shown}",
            retry_after=float(retry_after) if retry_after.isdigit() else 0.0,
        )
    if status == 404 and name:
        return FileNotFoundError(f"{bucket} has no {name}")
    if status in (401, 403):
        of_others = getattr(_latest, "page_status", 0) == status
        return not_understood(bucket) if of_others else denied(advice, bucket, shown)
    if status in (301, 307, 404):
        return misplaced(advice, bucket, shown)
    return Refused(f"The server of the bucket {bucket} refused a request: {shown}")


def denied(advice: Advice, bucket: str, shown: str) -> StoreError:
    """Return the error for a server that denies access."""
    message = f"The bucket {bucket} denies access: {shown}"
    return StoreError(message, fix=advice.credentials, denied=True)


def misplaced(advice: Advice, bucket: str, shown: str) -> StoreError:
    """Return the error for a bucket that does not exist."""
    message = f"The bucket {bucket} cannot be used: {shown}"
    return StoreError(message, fix=advice.place, denied=True)


def no_credentials(advice: Advice, bucket: str, error: Exception) -> StoreError:
    """Return the error for a library that found no credentials, or none that hold."""
    return StoreError(
        f"There are no usable credentials for the bucket {bucket} ({type(error).__name__})",
        fix=advice.credentials,
        denied=True,
    )


def of_network(bucket: str, error: OSError) -> OSError:
    """Return an error of ours or of a local file as it is; else the error of a failed network."""
    if isinstance(error, StoreError | FileNotFoundError) or error.filename:
        return error
    return unreachable(bucket, error)


def unreachable(bucket: str, error: Exception) -> StoreError:
    """Return the error for a network that failed.

    The message has only the kind of `error`: its text may have a signed address.
    """
    cause = getattr(error, "kwargs", {}).get("error") or error
    return StoreError(
        f"The server of the bucket {bucket} cannot be reached: {type(cause).__name__}"
    )


def note_answer(status: int, headers: Mapping[str, Any], body: bytes | None = None) -> bool:
    """Note an answer, for a message that it is not one of the protocol.

    Args:
        status: the status of HTTP.
        headers: the answer's headers, looked up without regard to case.
        body: the beginning of the body, for servers that call plain text a page.

    Returns:
        whether it is a web page.
    """
    page = is_page(headers) and (body is None or b"<html" in body.lower())
    _latest.page_status = status if page else 0
    kind = str(headers.get("Content-Type") or "").partition(";")[0].strip()
    host = urlsplit(str(headers.get("Location") or "")).hostname
    text = f"HTTP {status}" + (f" to {host}" if host else "") + (f", {kind}" if kind else "")
    _latest.text = text
    return page


def not_understood(bucket: str, why: str = "") -> StoreError:
    """Return the error for an answer that is not one of the protocol, with the one noted last.

    Args:
        bucket: the bucket's name.
        why: the fault, if the noted answer does not say it.
    """
    said = "; ".join(filter(None, [why, getattr(_latest, "text", "")]))
    return StoreError(
        f"What answers for the server of the bucket {bucket} does not speak its protocol: {said}",
        fix=PROXY_FIX,
    )


def is_page(headers: Mapping[str, Any]) -> bool:
    """Return whether an answer is a web page. Objects may be pages, too."""
    return str(headers.get("Content-Type") or "").lower().startswith("text/html")


@contextmanager
def understood(bucket: str) -> Iterator[None]:
    """Translate the errors of a library at an answer that is not one of its protocol.

    Raises:
        StoreError: the library or its caller failed because the answer lacks something.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise not_understood(bucket, type(error).__name__) from None
