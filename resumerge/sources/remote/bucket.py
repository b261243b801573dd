"""A model in a bucket, pinned by the ETags of its files.

A bucket keeps no history. A resumed run compares its listing with the listing at the beginning of
the run, and each request asks for the listed version of an object.
"""

from __future__ import annotations

from contextlib import suppress

from resumerge.buckets.calls import check_library
from resumerge.buckets.model import BucketModel, bucket_model, cached_bucket_model
from resumerge.errors import InputError, Resumable
from resumerge.recipe.types import ModelRef
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.index import MODEL, Contents
from resumerge.sources.remote.model import open_remote_model
from resumerge.sources.types import Source


def open_bucket_model(
    ref: ModelRef,
    *,
    revision: str | None = None,
    offline: bool = False,
    metadata: MetadataCache | None = None,
    contents: Contents | None = MODEL,
) -> Source:
    """Pin a model or an adapter in a bucket, and open it as `open_remote_model` does.

    Args:
        ref: the model as the recipe names it.
        revision: the revision of the source in an earlier attempt; None in the first one. If the
            bucket cannot be listed, the cached files of this revision are used.
        offline: use the cache only.
        metadata: the metadata cache of remote files; None for the default one.
        contents: the expected kind, model or adapter; None for either.

    Raises:
        InputError: the place is empty or has no weights, access is denied, a header is damaged, or
            the library for such buckets is missing; offline, files are missing in the cache.
        Resumable: the network failed, or an object changed while it was read.
    """
    metadata = metadata or MetadataCache()
    check_library(ref.name, "models")
    model = _bucket_model(ref, revision, metadata, offline=offline)
    source = open_remote_model(ref, model, metadata, contents)
    if model.online:
        model.remember(metadata, source.revision or "", ref.file)
    return source


def _bucket_model(
    ref: ModelRef, revision: str | None, metadata: MetadataCache, *, offline: bool
) -> BucketModel:
    if offline:
        return cached_bucket_model(ref.name, revision, metadata, ref.file)
    try:
        return bucket_model(ref.name, ref.file)
    except (Resumable, InputError):
        if revision is not None:
            with suppress(InputError):
                return cached_bucket_model(ref.name, revision, metadata, ref.file)
        raise
