"""The registry of the kinds of stores, by URL scheme. A new kind is registered only here."""

from __future__ import annotations

import re

from resumerge.errors import refuse
from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.buckets.azure import AzureStore
from resumerge.mirror.stores.buckets.google import GoogleStore
from resumerge.mirror.stores.buckets.s3 import S3Store
from resumerge.mirror.stores.folder import FolderStore
from resumerge.mirror.stores.hub import HubStore

STORES: dict[str, type[Store]] = {
    kind.scheme: kind for kind in (FolderStore, HubStore, S3Store, GoogleStore, AzureStore)
}
"""The kinds of stores, by scheme. The scheme of a path is empty."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(address: str, *, offline: bool = False) -> Store:
    """Return the store at an address that a user wrote, without contacting it.

    Args:
        address: the address as the user wrote it: a URL with a scheme, or the path of a folder.
        offline: whether the network must not be used.

    Raises:
        InputError: the address belongs to no kind of store or is malformed, or the store needs the
            network and `offline` is set.
    """
    scheme = _scheme(address)
    if scheme not in STORES:
        raise refuse(
            "This cannot be a mirror",
            where=address,
            expected=expected_address(),
            found=f"an address that begins with {scheme}",
            fix=f"write {scheme.lower()}:// in small letters"
            if scheme.lower() in STORES
            else "name one of these; mount other storage as a folder",
        )
    return STORES[scheme].open(address, offline=offline)


def is_mirror_url(text: str) -> bool:
    """Return whether a text is certainly the address of a mirror, not a run's id or output."""
    return any(kind.recognises(text) for kind in STORES.values())


def has_scheme(text: str) -> bool:
    """Return whether a text begins with a registered scheme, such as ``hf://``. Paths do not."""
    return bool(scheme := _scheme(text)) and scheme in STORES


def normalise(address: str) -> str:
    """Return an address in the form that the ledger records, valid from any working folder."""
    kind = STORES.get(_scheme(address), FolderStore)
    return kind.normalise(address)


def expected_address() -> str:
    """Return an example address of each kind of store, for messages."""
    return ", or ".join(kind.example for kind in STORES.values())


def _scheme(address: str) -> str:
    match = _SCHEME.match(address)
    return match[1] if match else ""
