"""Requests to a bucket for a model: retried for a while; final errors are explained to the user."""

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
"""The kinds of buckets by the scheme of their addresses."""

_opened: dict[str, tuple[bytes, Bucket]] = {}
_opening = threading.Lock()


def open_bucket(url: str) -> Bucket:
    """Return the bucket of an address.

    All readers of a bucket share one client, as long as the environment stays the same.

    Raises:
        InputError: the address is malformed.
    """
    kind, name = KINDS[scheme_of(url)], split_address(url)[0]
    settings = sorted(item for item in os.environ.items() if item[0].startswith(kind.variables))
    digest = hashlib.sha256(repr(settings).encode()).digest()
    place = f"{scheme_of(url)}://{name}"
    with _opening:
        known = _opened.get(place)
        if known is None or known[0] != digest:
            known = _opened[place] = digest, kind(name)
        return known[1]


def check_library(url: str, needed_by: str) -> None:
    """Check that the library is installed which makes requests to a bucket.

    Args:
        url: an address in the bucket.
        needed_by: "models" or "mirrors".

    Raises:
        InputError: the library is not installed.
    """
    kind = KINDS[scheme_of(url)]
    try:
        found = importlib.util.find_spec(kind.library)
    except ModuleNotFoundError:  # a package around the library is missing
        found = None
    if found is None:
        package = kind.library.replace(".", "-")
        raise refuse(
            f"{package} is not installed, which {needed_by} in {kind.kind} need",
            where=url,
            fix=f"pip install 'resumerge[{kind.extra}]'",
        )


def bucket_call(do: Callable[[], T], model: str) -> T:
    """Make small requests to a bucket, and retry them; see `RemoteFile.call`.

    Args:
        do: makes the requests; it must be safe to repeat.
        model: the address that the recipe names.
    """
    return retry_explained(do, lambda error: explain_bucket_error(error, model, model), REQUEST)


def explain_bucket_error(error: Exception, model: str, where: str) -> ResumergeError | None:
    """Return the error to raise for an exception of a request; None if the exception is a bug.

    Args:
        error: the exception.
        model: the address that the recipe names.
        where: the address of the object, for messages.
    """
    if isinstance(error, Changed):
        return changed(where, "it is another object than the one that was listed")
    if isinstance(error, StoreError) and error.denied:
        return refuse("The bucket cannot be read", where=model, found=error.message, fix=error.fix)
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return changed(where, "it is gone")
    if of_cache := cache_error(error, where):
        return of_cache
    if isinstance(error, OSError):
        return Resumable(
            Reason.NETWORK,
            f"{error} (needed for {where})\n"
            "Try again when the server can be reached: downloaded bytes are kept. If every file is "
            "in the cache, --offline needs no network.",
        )
    return None


def changed(where: str, what: str) -> Resumable:
    """Return the error for an object that is not the one listed when the model was opened."""
    return Resumable(
        Reason.SOURCE_CHANGED,
        f"{where} changed: {what}. Nothing of the new content was used. Put the old object back "
        "and resume, or start over with --restart.",
    )
