"""The meaning of a bucket server's answers, whatever the protocol.

Nothing of a request's headers or address is shown.
"""

from __future__ import annotations

from typing import NamedTuple

from resumerge.errors import StoreError


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
        meaning: the status that the code stands for, where the server's own says less.
    """
    shown = f"HTTP {status}" + (f", {code}" if code and code != str(status) else "")
    status = meaning or status
    if status == 412:
        return Changed()
    if status == 501:
        return Unsupported(
            f"The server of the bucket {bucket} lacks a request: {shown}", denied=True
        )
    if status == 409:
        return Conflict(f"Another write to the bucket {bucket} is in progress: {shown}")
    if status in (408, 429) or status >= 500:
        return StoreError(
            f"The server of the bucket {bucket} fails: {shown}",
            retry_after=float(retry_after) if retry_after.isdigit() else 0.0,
        )
    if status == 404 and name:
        return FileNotFoundError(f"{bucket} has no {name}")
    if status in (401, 403):
        return denied(advice, bucket, shown)
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
    """Return the error itself if it is ours, or a local file's; else that of a failed network."""
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
