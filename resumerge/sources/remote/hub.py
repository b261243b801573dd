"""A model on the Hub, pinned to a commit.

Files are in the standard cache of huggingface_hub, which other programs use, too.
"""

from __future__ import annotations

from contextlib import suppress

from resumerge.errors import InputError, Resumable
from resumerge.hub.cache import COMMIT
from resumerge.hub.calls import is_offline
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
    """Pin a Hub model or adapter to a commit, and open it as `open_remote_model` does.

    Args:
        ref: the model as the recipe names it.
        revision: the commit that an earlier attempt pinned; None for the revision in the recipe.
        offline: use the cache only, as with HF_HUB_OFFLINE.
        metadata: the metadata cache of remote files; None for the default one.
        contents: the expected kind, model or adapter; None for either.

    Returns:
        The source, pinned to a commit. A file is `present` if the cache has the whole file and does
        not know that it is damaged.

    Raises:
        InputError: the model does not exist or has no weights, access is denied, or a header is
            damaged; offline, the error lists the missing files.
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
        # A commit never changes, so the cache can replace the Hub. A branch may have moved.
        if wanted_revision and COMMIT.fullmatch(wanted_revision):
            with suppress(InputError):
                cached_model = cached_hub_model(ref.name, wanted_revision, metadata)
                return open_remote_model(ref, cached_model, metadata, contents)
        raise
