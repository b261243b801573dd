"""What an error of boto3 means. Nothing of a request's headers or address is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from resumerge.errors import StoreError

CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in with the AWS CLI, "
    "for an account that may list and read there, and for a mirror also write and delete"
)
PLACE = "create the bucket, or check its name, AWS_REGION and AWS_ENDPOINT_URL"

_WRONG_CREDENTIALS = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_WRONG_PLACE = {
    "NoSuchBucket",
    "InvalidBucketName",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
}
_BUSY = {"RequestTimeout", "SlowDown", "BadDigest", "IncompleteBody"}
_NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
    "SSOError",
    "TokenRetrievalError",
    "InvalidConfigError",
    "ConfigParseError",
)


class Changed(Exception):
    """A request's condition is not met: the object exists, or is another one than expected."""


class Unsupported(StoreError):
    """The server says that it does not know what was asked for."""


class Refused(StoreError):
    """The server refused a request for a reason that is not known here."""


class Conflict(StoreError):
    """Another write of the same object is in progress: nothing was written."""


@contextmanager
def s3_errors(bucket: str, name: str = "") -> Iterator[None]:
    """A context for calls of boto3 about a bucket; it translates their errors.

    Args:
        name: of the object that is read; then a missing one is no `StoreError`.

    Raises:
        FileNotFoundError: there is no such object.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the request's condition is not met.
        Unsupported: the server does not know the request.
    """
    import http.client

    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        raise _refusal(error.response, bucket, name) from None
    except BotoCoreError as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & set(_NO_CREDENTIALS):
            raise StoreError(
                f"There are no usable credentials for the bucket {bucket} ({type(error).__name__})",
                fix=CREDENTIALS,
                denied=True,
            ) from None
        if "ParamValidationError" in kinds:
            raise StoreError(f"{bucket} cannot be a bucket", fix=PLACE, denied=True) from None
        raise _unreachable(bucket, error) from None
    except (HTTPError, http.client.HTTPException) as error:
        raise _unreachable(bucket, error) from None
    except OSError as error:
        # Errors of local files have a path; ours are not translated again.
        if isinstance(error, (StoreError, FileNotFoundError)) or error.filename:
            raise
        raise _unreachable(bucket, error) from None


def _unreachable(bucket: str, error: Exception) -> StoreError:
    return StoreError(f"The server of the bucket {bucket} cannot be reached: {_words(error)}")


def _words(error: Exception) -> str:
    """The kind of an error: its text may have an address with a signature."""
    cause = getattr(error, "kwargs", {}).get("error") or error
    return type(cause).__name__


def _refusal(response: dict[str, Any], bucket: str, name: str) -> Exception:
    """The error that an answer of the server means."""
    code = str(response.get("Error", {}).get("Code", ""))
    facts = response.get("ResponseMetadata", {})
    status = int(facts.get("HTTPStatusCode", 0))
    shown = f"HTTP {status}" + (f", {code}" if code and code != str(status) else "")
    if code == "PreconditionFailed" or status == 412:
        return Changed()
    if code == "NotImplemented" or status == 501:
        return Unsupported(
            f"The server of the bucket {bucket} lacks a request: {shown}", denied=True
        )
    if code == "ConditionalRequestConflict" or status == 409:
        return Conflict(f"Another write to the bucket {bucket} is in progress: {shown}")
    if status == 429 or status >= 500 or code in _BUSY:
        after = str(facts.get("HTTPHeaders", {}).get("retry-after", ""))
        return StoreError(
            f"The server of the bucket {bucket} fails: {shown}",
            retry_after=float(after) if after.isdigit() else 0.0,
        )
    if code in _WRONG_PLACE or status in (301, 307):
        return StoreError(f"The bucket {bucket} cannot be used: {shown}", fix=PLACE, denied=True)
    if status == 404 and name:
        return FileNotFoundError(f"{bucket} has no {name}")
    if code == "RequestTimeTooSkewed":
        fix = "set the clock of this machine"
        return StoreError(f"The bucket {bucket} denies access: {shown}", fix=fix, denied=True)
    if code == "NoSuchUpload":
        return StoreError(f"An upload to the bucket {bucket} was ended by somebody else")
    if status in (401, 403) or code in _WRONG_CREDENTIALS:
        return StoreError(
            f"The bucket {bucket} denies access: {shown}", fix=CREDENTIALS, denied=True
        )
    if status == 404:
        return StoreError(f"The bucket {bucket} cannot be used: {shown}", fix=PLACE, denied=True)
    return Refused(f"The server of the bucket {bucket} refused a request: {shown}")
