"""Addresses in buckets: ``s3://bucket/prefix``, and the same for other clouds."""

from __future__ import annotations

import re

from resumerge.errors import refuse
from resumerge.foreign_files import has_odd_part
from resumerge.printable import without_secrets

EXAMPLES = {
    "s3": "s3://bucket/prefix",
    "gs": "gs://bucket/prefix",
    "az": "az://container/prefix",
}
"""An example address for each cloud, by scheme. A scheme that is not here is unknown."""

SECRETS_FIX = "leave out what … stands for: credentials come from the environment"

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def is_bucket(text: str) -> bool:
    """Return whether a text begins with the scheme of a bucket; the rest may be malformed."""
    return scheme_of(text) in EXAMPLES


def scheme_of(url: str) -> str:
    """Return the text before ``://``; empty if the address has no ``://``."""
    scheme, separator, _ = url.partition("://")
    return scheme if separator else ""


def split_address(url: str) -> tuple[str, str]:
    """Return the bucket and the prefix of an address; the prefix may be empty.

    Raises:
        InputError: the address is malformed. The message masks a possible password.
    """
    scheme = scheme_of(url)
    path = url.removeprefix(f"{scheme}://").removesuffix("/")
    bucket, _, prefix = path.partition("/")
    safe_url, fix = without_secrets(url), "check the spelling"
    if safe_url != url:
        fix = SECRETS_FIX
    elif _BUCKET.fullmatch(bucket) and not (prefix and has_odd_part(prefix)):
        return bucket, prefix
    raise refuse(
        "This is not the address of a place in a bucket",
        where=safe_url,
        expected=EXAMPLES[scheme],
        fix=fix,
    )
