"""The translation of boto3's errors. Messages contain no headers or address of a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from resumerge.buckets.errors import (
    Advice,
    denied,
    misplaced,
    no_credentials,
    not_understood,
    of_network,
    refusal,
    understood,
    unreachable,
)
from resumerge.errors import StoreError

ADVICE = Advice(
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in with the AWS CLI, "
    "for an account that may list and read there, and for a mirror also write and delete",
    "create the bucket, or check its name, AWS_REGION and AWS_ENDPOINT_URL",
)

_WRONG_CREDENTIALS = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_WRONG_PLACE = {
    "NoSuchBucket",
    "InvalidBucketName",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
}
_MEANING = {
    "PreconditionFailed": 412,
    "NotImplemented": 501,
    "ConditionalRequestConflict": 409,
    **dict.fromkeys(("RequestTimeout", "SlowDown", "BadDigest", "IncompleteBody"), 503),
}
"""The HTTP status to use for some codes, in place of the status in the response."""

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


@contextmanager
def s3_errors(bucket: str, name: str = "") -> Iterator[None]:
    """Translate the errors of boto3's calls in this context.

    Args:
        bucket: the bucket's name, for messages.
        name: the name of the object that is read; empty for other requests. With a name, a missing
            object is a `FileNotFoundError`, not a `StoreError`.

    Raises:
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the request's condition is not met.
        Unsupported: the server does not support the request.
    """
    import http.client

    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    try:
        with understood(bucket):
            yield
    except ResponseParserError as error:
        raise not_understood(bucket, type(error).__name__) from None
    except ClientError as error:
        raise _refusal(error.response, bucket, name) from None
    except BotoCoreError as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & set(_NO_CREDENTIALS):
            raise no_credentials(ADVICE, bucket, error) from None
        if "ParamValidationError" in kinds:
            raise StoreError(
                f"{bucket} cannot be a bucket", fix=ADVICE.place, denied=True
            ) from None
        raise unreachable(bucket, error) from None
    except (HTTPError, http.client.HTTPException) as error:
        raise unreachable(bucket, error) from None
    except OSError as error:
        raise of_network(bucket, error) from None


def _refusal(response: dict[str, Any], bucket: str, name: str) -> Exception:
    """Return the error for an error response of the server, by its code or else its status."""
    code = str(response.get("Error", {}).get("Code", ""))
    metadata = response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    status_and_code = f"HTTP {status}" + (f", {code}" if code and code != str(status) else "")
    if code in _WRONG_PLACE:
        return misplaced(ADVICE, bucket, status_and_code)
    if code in _WRONG_CREDENTIALS:
        return denied(ADVICE, bucket, status_and_code)
    if code == "RequestTimeTooSkewed":
        return denied(
            ADVICE._replace(credentials="set the clock of this machine"), bucket, status_and_code
        )
    if code == "NoSuchUpload" and not name:
        return StoreError(f"Another process aborted the upload to bucket {bucket}")
    retry_after = str(metadata.get("HTTPHeaders", {}).get("retry-after", ""))
    return refusal(ADVICE, bucket, status, code, name, retry_after, _MEANING.get(code))
