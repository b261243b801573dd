"""Opens a model by its reference: local, on the Hub or in a bucket, with or without an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.buckets.address import is_bucket
from resumerge.recipe.references import is_local
from resumerge.recipe.types import ModelRef
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.adapters.lora import with_adapter
from resumerge.sources.gguf import from_gguf
from resumerge.sources.index import ADAPTER, MODEL, Contents
from resumerge.sources.local import open_local
from resumerge.sources.quantised import dequantised
from resumerge.sources.remote.bucket import open_bucket_model
from resumerge.sources.remote.hub import open_hub_model
from resumerge.sources.types import Source


def open_source(
    ref: ModelRef,
    pins: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    offline: bool = False,
    metadata: MetadataCache | None = None,
    contents: Contents | None = MODEL,
) -> Source:
    """Open a model: read its headers and config, but not its weights.

    Args:
        ref: the model as the recipe names it.
        pins: the pins of a run, by the text of the reference: the `revision` of a remote model, or
            the `path` of a local folder or file. A reference without a pin is resolved again.
        offline: do not use the network.
        metadata: the metadata cache of remote files; None for the default one.
        contents: the expected kind: a model, or an adapter without a model; None for either.

    Raises:
        InputError: the model or its adapter does not exist, or is damaged.
        Resumable: the network failed.
    """
    base, *adapters = ref.parts
    contents = MODEL if adapters else contents
    base_source = dequantised(from_gguf(_open_part(base, contents, pins or {}, offline, metadata)))
    for adapter in adapters:
        return with_adapter(
            ref, base_source, _open_part(adapter, ADAPTER, pins or {}, offline, metadata)
        )
    return base_source


def _open_part(
    ref: ModelRef,
    contents: Contents | None,
    pins: Mapping[str, Mapping[str, Any]],
    offline: bool,
    metadata: MetadataCache | None,
) -> Source:
    pin = pins.get(ref.text, {})
    if "path" in pin or is_local(ref.name):
        return open_local(ref, pin.get("path"), contents)
    open_remote = open_bucket_model if is_bucket(ref.name) else open_hub_model
    return open_remote(
        ref, revision=pin.get("revision"), offline=offline, metadata=metadata, contents=contents
    )
