"""A model on the Hub, pinned to a commit.

Everything goes through the standard cache of huggingface_hub, which other programs use, too.
"""

from __future__ import annotations

from contextlib import suppress

from resumerge.errors import InputError, Resumable
from resumerge.hub.cache import COMMIT
from resumerge.hub.client import is_offline
from resumerge.hub.model import cached_hub_model, hub_model
from resumerge.recipe.types import ModelRef
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.index import MODEL, Contents
from resumerge.sources.remote.model import open_remote_model
from resumerge.sources.types import Source


def open_hub_model(
    ref: ModelRef,
    *,
    revision: str | None = None,
    offline: bool = False,
    metadata: MetadataCache | None = None,
    contents: Contents | None = MODEL,
) -> Source:
    """Pin a Hub model or adapter and read the headers of its weight files: `open_remote_model`.

    Args:
        ref: the model as the recipe names it.
        revision: the commit that an earlier attempt pinned, in place of the recipe's branch.
        offline: use the cache only, as with HF_HUB_OFFLINE.
        metadata: the metadata cache of remote files.
        contents: whether the repo should hold a model or an adapter; None for either.

    Returns:
        The source, at a commit. A file is `present` if the cache has all of it and it is not known
        to be damaged.

    Raises:
        InputError: no such model, no access, no weights in it, damaged headers; offline, with the
            names of the missing files.
        Resumable: the network failed.

    Example:
        >>> source = open_hub_model(ModelRef("org/name", "org/name"))  # doctest: +SKIP
        >>> fetch(source, [name for name, file in source.files.items() if not file.present])
    """
    wanted_revision = revision or ref.revision
    metadata = metadata or MetadataCache()
    if offline or is_offline():
        return open_remote_model(
            ref, cached_hub_model(ref.name, wanted_revision, metadata), metadata, contents
        )
    try:
        return open_remote_model(
            ref, hub_model(ref.name, wanted_revision, metadata), metadata, contents
        )
    except (Resumable, InputError):
        # A commit never changes, so the cache can stand in for the Hub; a branch may have moved.
        if wanted_revision and COMMIT.fullmatch(wanted_revision):
            with suppress(InputError):
                cached = cached_hub_model(ref.name, wanted_revision, metadata)
                return open_remote_model(ref, cached, metadata, contents)
        raise
