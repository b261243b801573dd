"""One bucket of Google Cloud Storage: the requests that read, and the translation of errors.

Requests are made with google-cloud-storage, Google's own library. It finds credentials in the same
places as Google's tools. An object's generation is used as its ETag, because Google's conditions
compare generations.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import http.client
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from resumerge.buckets.base import CONNECT_TIMEOUT, IDLE_TIMEOUT, Listed, server_name, stated
from resumerge.buckets.errors import (
    REDIRECTS,
    Advice,
    Changed,
    misplaced,
    no_credentials,
    not_understood,
    note_answer,
    of_network,
    refusal,
    understood,
    unreachable,
)
from resumerge.buckets.ranges import Hash, RangedBucket
from resumerge.errors import StoreError

ADVICE = Advice(
    "log in with 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS, "
    "for an account that may list and read there, and for a mirror also write and delete",
    "create the bucket, or check its name and STORAGE_EMULATOR_HOST",
)

SERVER = "storage.googleapis.com"

REPEATED_SECONDS = 4.0
"""The seconds for which the library repeats a failing request."""


@functools.cache
def patience() -> dict[str, Any]:
    """Return the arguments for the timeouts and retries of a request."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    retry = DEFAULT_RETRY.with_delay(initial=0.2, maximum=1.0).with_timeout(REPEATED_SECONDS)
    return {"retry": retry, "timeout": (CONNECT_TIMEOUT, IDLE_TIMEOUT)}


class GoogleBucket(RangedBucket):
    """A bucket of Google Cloud Storage.

    The library reads GOOGLE_APPLICATION_CREDENTIALS, STORAGE_EMULATOR_HOST and the files of gcloud.
    On a machine in Google's cloud, it also requests credentials from the metadata server.
    """

    kind = "buckets of Google Cloud Storage"
    library = "google.cloud.storage"
    extra = "google"
    variables = ("GOOGLE_", "CLOUDSDK_", "STORAGE_EMULATOR_HOST")

    @property
    def server(self) -> str:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        try:
            return server_name(emulator) if emulator else SERVER
        except ValueError:
            fault = "STORAGE_EMULATOR_HOST is not http://HOST or http://HOST:PORT"
            raise misplaced(ADVICE, self.name, fault) from None

    def list(self, prefix: str) -> dict[str, Listed]:
        fields = "items(name,size,generation),nextPageToken"
        with google_errors(self.name):
            return {
                blob.name.removeprefix(prefix): stated(self.name, blob.size, blob.generation)
                for blob in self.api().list_blobs(prefix=prefix, fields=fields, **patience())
                if not blob.name.endswith("/")  # Google's console marks a folder by this name
            }

    def head(self, key: str) -> tuple[Listed, Hash | None]:
        with google_errors(self.name, key):
            blob = self.api().blob(key)
            blob.reload(**patience())
            return stated(self.name, blob.size, blob.generation), hash_of(blob)

    def _range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        try:
            with google_errors(self.name, key):
                range_bytes: bytes = (
                    self.api()
                    .blob(key, generation=int(etag))
                    .download_as_bytes(
                        start=start, end=stop - 1, raw_download=True, checksum=None, **patience()
                    )
                )
        except FileNotFoundError:  # this generation no longer exists
            raise Changed from None
        return range_bytes

    def _open(self) -> Any:
        from google.cloud import storage

        _ = self.server  # raises for an endpoint that cannot work
        try:
            with _library_errors(self.name, ""):
                client = storage.Client(project=None)
        except StoreError:
            raise
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            # The library raises these for a file of credentials that is unreadable or malformed.
            raise no_credentials(ADVICE, self.name, error) from None
        try:
            with _library_errors(self.name, ""):
                client._http.hooks["response"].append(self._check_answer)
            return client.bucket(self.name)
        except ValueError:
            raise misplaced(ADVICE, self.name, "no bucket can have this name") from None

    def _check_answer(self, response: Any, *_: Any, **__: Any) -> None:
        """Refuse a response that is not Google's: a redirect, or a web page in place of JSON."""
        # Google declares the text of a refused download as HTML.
        status, is_json = response.status_code, "alt=media" not in response.url
        body = response.content[:1000] if status in (401, 403) else None
        is_page = note_answer(status, response.headers, body)
        is_page_of_others = is_page and (status in (401, 403) or (is_json and status < 400))
        if status in REDIRECTS or is_page_of_others:
            raise not_understood(self.name)


def hash_of(blob: Any) -> Hash | None:
    """Return Google's hash of an object: MD5, or CRC-32C if it was composed; None without both."""
    if blob.md5_hash:
        return (lambda: hashlib.md5(usedforsecurity=False)), base64.b64decode(blob.md5_hash)
    if blob.crc32c:
        return _Crc32c, base64.b64decode(blob.crc32c)
    return None


class _Crc32c:
    """CRC-32C as a digest."""

    def __init__(self) -> None:
        import google_crc32c

        checksum: Any = google_crc32c.Checksum
        self._checksum = checksum()

    def update(self, data: bytes | memoryview, /) -> None:
        self._checksum.update(bytes(data))

    def hexdigest(self) -> str:
        digest: bytes = self._checksum.digest()
        return digest.hex()


@contextmanager
def google_errors(bucket: str, name: str = "") -> Iterator[None]:
    """Translate the errors of the calls of Google's library in this context.

    Args:
        bucket: the bucket's name, for messages.
        name: the name of the object that is read; empty for other requests. With a name, a missing
            object is a `FileNotFoundError`, not a `StoreError`.

    Raises:
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the request's condition is not met.
    """
    with understood(bucket), _library_errors(bucket, name):
        yield


@contextmanager
def _library_errors(bucket: str, name: str) -> Iterator[None]:
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.resumable_media.common import DataCorruption, InvalidResponse
    from requests.exceptions import JSONDecodeError, RequestException
    from urllib3.exceptions import HTTPError

    try:
        try:
            yield
        except RetryError as error:  # it contains the last error of the repeated request
            raise error.cause from None
    except GoogleAPICallError as error:
        reason = str((error.errors or [{}])[0].get("reason", "")) if error.errors else ""
        raise _refusal(bucket, name, error.code, reason, error.response) from None
    except InvalidResponse as error:
        raise _refusal(bucket, name, error.response.status_code, "", error.response) from None
    except TransportError as error:
        raise unreachable(bucket, error) from None
    except GoogleAuthError as error:
        if error.retryable:
            raise unreachable(bucket, error) from None
        raise no_credentials(ADVICE, bucket, error) from None
    except (DataCorruption, HTTPError, http.client.HTTPException) as error:
        raise unreachable(bucket, error) from None
    except JSONDecodeError as error:
        raise not_understood(bucket, type(error).__name__) from None
    except (RequestException, OSError) as error:
        raise of_network(bucket, error) from None


def _refusal(bucket: str, name: str, status: int | None, reason: str, response: Any) -> Exception:
    headers = getattr(response, "headers", None) or {}
    retry_after = str(headers.get("Retry-After", ""))
    code = reason if reason.isalpha() else ""
    return refusal(ADVICE, bucket, int(status or 0), code, name, retry_after)
