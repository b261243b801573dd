"""One container of Azure Blob Storage: the requests that read, and the translation of errors.

Requests are made with azure-storage-blob, Microsoft's own library. The account and its credentials
come from the environment variables of the Azure CLI.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from resumerge.buckets.base import CONNECT_TIMEOUT, IDLE_TIMEOUT, Listed, server_name, stated
from resumerge.buckets.errors import (
    REDIRECTS,
    Advice,
    Changed,
    Refused,
    denied,
    misplaced,
    no_credentials,
    not_understood,
    note_answer,
    of_network,
    refusal,
    understood,
    unreachable,
)
from resumerge.buckets.ranges import RANGE, Hash, RangedBucket
from resumerge.errors import StoreError

ADVICE = Advice(
    "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or "
    "AZURE_STORAGE_SAS_TOKEN, for an account that may list and read there, and for a mirror also "
    "write and delete",
    "create the container, or check its name, AZURE_STORAGE_ACCOUNT and the endpoint",
)

_NOT_MET = {"ConditionNotMet", "TargetConditionNotMet", ""}
"""The codes with HTTP 412 that mean that a condition of our request is not met. Other codes with
HTTP 412 are about leases and sources of copies."""

_LEASED = "break the lease on the blob"
_FOR_GOOD = {
    "BlobArchived": "set the access tier of the blob to Hot or Cool, and wait until that is done",
    "BlobBeingRehydrated": "wait until the access tier of the blob is Hot or Cool",
    "BlobImmutableDueToPolicy": "use a container without a policy of immutability or a legal hold",
    "InvalidBlobType": "remove the blob, which is no block blob, or use another prefix",
    "LeaseIdMismatchWithBlobOperation": _LEASED,
    "LeaseIdMissing": _LEASED,
    "SnapshotsPresent": "remove the snapshots of the blob",
}
"""The advice for errors that a retry cannot solve, by error code. The HTTP status is ignored."""

BLOCK_LIST_BYTES = 64 << 20
"""The largest size in bytes of a blob that the library's `upload_blob` writes in one request."""


class AzureBucket(RangedBucket):
    """A container of Azure Blob Storage."""

    kind = "containers of Azure"
    library = "azure.storage.blob"
    extra = "azure"
    variables = ("AZURE_STORAGE_",)

    @property
    def server(self) -> str:
        """The server's name, usable in a path; the account is added if the host lacks it."""
        api = self._client()
        variable = os.environ.get("AZURE_STORAGE_ACCOUNT")
        is_complete = bool(os.environ.get("AZURE_STORAGE_CONNECTION_STRING"))
        host = self._host(api)
        account = api.account_name if is_complete or not variable else variable
        return host if host.partition(".")[0] == account else f"{host}_{account}"

    def list(self, prefix: str) -> dict[str, Listed]:
        blobs = {}
        with azure_errors(self.name):
            for blob in self.api().list_blobs(name_starts_with=prefix, include=["metadata"]):
                is_folder = (blob.metadata or {}).get("hdi_isfolder") == "true"
                if not is_folder and not blob.name.endswith("/"):
                    listing = stated(self.name, blob.size, blob.etag)
                    blobs[blob.name.removeprefix(prefix)] = listing
        return blobs

    def head(self, key: str) -> tuple[Listed, Hash | None]:
        with azure_errors(self.name, key):
            properties = self.api().get_blob_client(key).get_blob_properties()
            listing = stated(self.name, properties.size, properties.etag)
            md5 = properties.content_settings.content_md5
        expected_hash = ((lambda: hashlib.md5(usedforsecurity=False)), bytes(md5)) if md5 else None
        return listing, expected_hash

    def _range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        with azure_errors(self.name, key):
            blob = self.api().get_blob_client(key)
            stream = blob.download_blob(start, stop - start, decompress=False, **unchanged(etag))
            range_bytes: bytes = stream.readall()
        return range_bytes

    def _open(self) -> Any:
        from azure.storage.blob import LinearRetry

        # Without a handler, the library's log messages would be printed to the terminal.
        logging.getLogger("azure").addHandler(logging.NullHandler())
        suffixes = ("CONNECTION_STRING", "KEY", "SAS_TOKEN")
        if not any(os.environ.get(f"AZURE_STORAGE_{suffix}") for suffix in suffixes):
            raise no_credentials(ADVICE, self.name, ValueError())
        api = self._client(
            connection_timeout=CONNECT_TIMEOUT,
            read_timeout=IDLE_TIMEOUT,
            retry_policy=LinearRetry(backoff=1, retry_total=2, random_jitter_range=0),
            max_single_get_size=RANGE,
            max_chunk_get_size=RANGE,
            max_single_put_size=BLOCK_LIST_BYTES,
            permit_redirects=False,
            raw_response_hook=_note,
        )
        self._host(api)  # raises for an endpoint that cannot work
        return api

    def _client(self, **settings: Any) -> Any:
        """Return a client for the account and credentials in the environment variables.

        Args:
            **settings: further arguments of the library's client.

        Raises:
            StoreError: the variables are missing or malformed.
        """
        from azure.storage.blob import ContainerClient

        connection_string = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
        account = os.environ.get("AZURE_STORAGE_ACCOUNT")
        endpoint = os.environ.get("AZURE_STORAGE_SERVICE_ENDPOINT")
        account_key = os.environ.get("AZURE_STORAGE_KEY")
        sas_token = os.environ.get("AZURE_STORAGE_SAS_TOKEN")
        try:
            if connection_string:
                return ContainerClient.from_connection_string(
                    connection_string, self.name, **settings
                )
            if not (account or endpoint):
                raise ValueError
            # The library does not recognise an account in the path of an endpoint.
            account_and_key: Any = {"account_name": account, "account_key": account_key}
            url = endpoint or f"https://{account}.blob.core.windows.net"
            credential = sas_token or (account_and_key if account and account_key else account_key)
            return ContainerClient(url, self.name, credential, **settings)
        except ValueError as error:  # its text can contain the secret
            raise no_credentials(ADVICE, self.name, error) from None

    def _host(self, api: Any) -> str:
        """Return the server's host and port as one text that is usable in a path.

        Raises:
            StoreError: the endpoint is malformed.
        """
        try:
            if "://" in str(api.url).partition("?")[0].partition("://")[2]:
                raise ValueError  # the library treats an unknown scheme as the name of a server
            return server_name(api.url)
        except ValueError:
            fault = "its endpoint is not https://HOST or http://HOST:PORT"
            raise misplaced(ADVICE, self.name, fault) from None


def unchanged(etag: str) -> dict[str, Any]:
    """Return the arguments of a request for the condition that a blob has this ETag.

    Args:
        etag: the ETag without quotes.
    """
    from azure.core import MatchConditions

    return {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}


def missing() -> dict[str, Any]:
    """Return the arguments of a request for the condition that no blob has this name."""
    from azure.core import MatchConditions

    return {"match_condition": MatchConditions.IfMissing}


@contextmanager
def azure_errors(bucket: str, name: str = "") -> Iterator[None]:
    """Translate the errors of the calls of Azure's library in this context.

    Args:
        bucket: the container's name, for messages.
        name: the name of the blob that is read; empty for other requests. With a name, a missing
            blob is a `FileNotFoundError`, not a `StoreError`.

    Raises:
        FileNotFoundError: the blob does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the request's condition is not met.
    """
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

    try:
        with understood(bucket):
            yield
    except HttpResponseError as error:
        if error.status_code is None and isinstance(error, ClientAuthenticationError):
            raise no_credentials(ADVICE, bucket, error) from None  # a request cannot be signed
        if error.status_code is None:  # the response could not be read
            raise unreachable(bucket, error) from None
        raise _refusal(bucket, name, error) from None
    except AzureError as error:
        raise unreachable(bucket, error) from None
    except OSError as error:
        raise of_network(bucket, error) from None


def _note(response: Any) -> None:
    """Record a response for the message of `not_understood`."""
    note_answer(response.http_response.status_code, response.http_response.headers)


def _refusal(bucket: str, name: str, error: Any) -> Exception:
    raw_code = getattr(error, "error_code", None) or ""
    code = str(getattr(raw_code, "value", raw_code))
    headers = getattr(error.response, "headers", {})
    status, retry_after = error.status_code, str(headers.get("Retry-After", ""))
    note_answer(status, headers)
    if status in REDIRECTS or status < 300:
        return not_understood(bucket)
    status_and_code = f"HTTP {status}, {code}"
    if fix := _FOR_GOOD.get(code):
        message = (
            f"The container {bucket} refused a request{name and f' for {name}'}: {status_and_code}"
        )
        return StoreError(message, fix=fix, denied=True)
    if code == "PublicAccessNotPermitted":
        return denied(ADVICE, bucket, status_and_code)
    if code == "BlobAlreadyExists":
        return Changed()
    if status == 412 and code not in _NOT_MET:
        return Refused(f"The container {bucket} refused a request: {status_and_code}")
    if code in ("ContainerNotFound", "ContainerBeingDeleted", "InvalidResourceName"):
        name, status = "", 404
    return refusal(ADVICE, bucket, status, code, name, retry_after)
