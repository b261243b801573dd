"""Retries of a store's operations after temporary failures."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from resumerge.errors import Reason, Resumable, ResumergeError, refuse
from resumerge.host.processes import clock
from resumerge.mirror.stores.base import Store, StoreError
from resumerge.retry import Backoff, retry_explained

_PERMANENT = {errno.EROFS, errno.EACCES, errno.EPERM}

_FIXES = {
    "mirror": (
        "change its permissions, or name another mirror; to continue a run from this mirror, "
        "copy the folder to a writable place and resume from the copy"
    )
}

T = TypeVar("T")


def retry_store(store: Store, call: Callable[[], T], noun: str = "") -> T:
    """Call a function that uses a store, and repeat the call after temporary failures.

    Args:
        store: the store that `call` uses, for its patience and address.
        call: the function; it must be safe to repeat.
        noun: the word for the store in messages; empty for `store.noun`.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: the store denies the operation.
        Resumable: the store fails for longer than its `patience`.
    """
    backoff = Backoff(first=0.1, longest=2.0, seconds=store.patience)
    noun = noun or store.noun
    return retry_explained(call, lambda error: _explain(error, store, noun), backoff, clock=clock)


def _explain(error: Exception, store: Store, noun: str) -> ResumergeError | None:
    if isinstance(error, FileNotFoundError) or not isinstance(error, OSError):
        return None
    if error.errno not in _PERMANENT:
        return Resumable(Reason.MIRROR, f"The {noun} at {store.url} cannot be reached: {error}")
    message, fix = (error.message, error.fix) if isinstance(error, StoreError) else (str(error), "")
    return refuse(
        f"The {noun} cannot be used",
        where=store.url,
        found=message,
        fix=fix or _FIXES.get(noun, f"change its permissions, or name another {noun}"),
    )
