"""Requests to a bucket for a model: retries, and the errors that users see."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from resumerge.buckets.address import scheme_of, split_address
from resumerge.buckets.azure import AzureBucket
from resumerge.buckets.base import Bucket
from resumerge.buckets.errors import Changed
from resumerge.buckets.google import GoogleBucket
from resumerge.buckets.s3 import S3Bucket
from resumerge.errors import Reason, Resumable, ResumergeError, StoreError, refuse
from resumerge.remote.cache_errors import cache_error
from resumerge.remote.file import REQUEST
from resumerge.retry import retry_explained

T = TypeVar("T")

KINDS: dict[str, type[Bucket]] = {"s3": S3Bucket, "gs": GoogleBucket, "az": AzureBucket}
"""The class of buckets for each scheme."""

_opened: dict[str, tuple[bytes, Bucket]] = {}
_opening = threading.Lock()


def open_bucket(url: str) -> Bucket:
    """Return the bucket of an address.

    All readers of a bucket share one client. A new client is opened only if the cloud's environment
    variables have changed.

    Raises:
        InputError: the address is malformed.
    """
    kind, name = KINDS[scheme_of(url)], split_address(url)[0]
    settings = sorted(
        variable for variable in os.environ.items() if variable[0].startswith(kind.variables)
    )
    digest = hashlib.sha256(repr(settings).encode()).digest()
    place = f"{scheme_of(url)}://{name}"
    with _opening:
        digest_and_bucket = _opened.get(place)
        if digest_and_bucket is None or digest_and_bucket[0] != digest:
            digest_and_bucket = _opened[place] = digest, kind(name)
        return digest_and_bucket[1]


def check_library(url: str, needed_by: str) -> None:
    """Verify that the library for an address's cloud is installed.

    Args:
        url: an address in the bucket.
        needed_by: "models" or "mirrors", for the message.

    Raises:
        InputError: the library is not installed.
    """
    kind = KINDS[scheme_of(url)]
    try:
        spec = importlib.util.find_spec(kind.library)
    except ModuleNotFoundError:  # a package around the library is missing
        spec = None
    if spec is None:
        package = kind.library.replace(".", "-")
        raise refuse(
            f"{package} is not installed, which {needed_by} in {kind.kind} need",
            where=url,
            fix=f"pip install 'resumerge[{kind.extra}]'",
        )


def bucket_call(do: Callable[[], T], model: str) -> T:
    """Make small requests to a bucket, and retry them after temporary failures.

    Args:
        do: makes the requests; it must be safe to repeat.
        model: the model's address in the recipe.

    Raises:
        InputError: see `RemoteFile.call`.
        Resumable: see `RemoteFile.call`.
    """
    return retry_explained(do, lambda error: explain_bucket_error(error, model, model), REQUEST)


def explain_bucket_error(error: Exception, model: str, where: str) -> ResumergeError | None:
    """Return the error to raise for an exception of a request; None if the exception is a bug.

    Args:
        error: an exception of a request, or of a write to the cache.
        model: the model's address in the recipe.
        where: the address of the object, for messages.
    """
    if isinstance(error, Changed):
        return changed(where, "it is another object than the one that was listed")
    if isinstance(error, StoreError) and error.denied:
        return refuse("The bucket cannot be read", where=model, found=error.message, fix=error.fix)
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return changed(where, "it is gone")
    if cache_failure := cache_error(error, where):
        return cache_failure
    if isinstance(error, OSError):
        return Resumable(
            Reason.NETWORK,
            f"{error} (needed for {where})\n"
            "Try again when the server can be reached: downloaded bytes are kept. If every file is "
            "in the cache, --offline needs no network.",
        )
    return None


def changed(where: str, what: str) -> Resumable:
    """Return the error for an object that has changed since the model was opened.

    Args:
        where: the address of the object, for the message.
        what: the difference, for the message.
    """
    return Resumable(
        Reason.SOURCE_CHANGED,
        f"{where} changed: {what}. Nothing of the new content was used. Put the old object back "
        "and resume, or start over with --restart.",
    )
