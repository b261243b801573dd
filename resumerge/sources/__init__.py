"""Input models: where their tensors stand, what pins them, and reading ranges of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.hub.metadata_cache import MetadataCache
from resumerge.recipe.references import is_local
from resumerge.recipe.types import ModelRef
from resumerge.sources.adapters.lora import with_adapter
from resumerge.sources.formats.quantised import check_unquantised
from resumerge.sources.hub_models.hub_files import fetch, list_companions
from resumerge.sources.index import ADAPTER, MODEL, Contents
from resumerge.sources.types import Source, SourceFile, TensorInfo

__all__ = [
    "MetadataCache",
    "Source",
    "SourceFile",
    "TensorInfo",
    "fetch",
    "list_companions",
    "open_source",
]


def open_source(
    ref: ModelRef,
    pins: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    offline: bool = False,
    records: MetadataCache | None = None,
) -> Source:
    """Open a model: its headers and config are read, its weights are not.

    Args:
        pins: by the text of a reference, where a run has pinned it: `revision`, the commit of a
            Hub repo, or `folder`, where a local one was. What is not in it resolves by itself.
        offline: touch no network.
        records: what is known of Hub files already.

    Raises:
        InputError: the model, or its adapter, is not there, or is damaged.
        Resumable: the network failed.
    """
    base, *adapters = ref.parts
    opened = _open_part(base, MODEL, pins or {}, offline, records)
    check_unquantised(opened)
    for adapter in adapters:
        return with_adapter(ref, opened, _open_part(adapter, ADAPTER, pins or {}, offline, records))
    return opened


def _open_part(
    ref: ModelRef,
    contents: Contents,
    pins: Mapping[str, Mapping[str, Any]],
    offline: bool,
    records: MetadataCache | None,
) -> Source:
    pin = pins.get(ref.text, {})
    if "folder" in pin or is_local(ref.name):
        from resumerge.sources.local import open_local

        return open_local(ref, pin.get("folder"), contents)
    from resumerge.sources.hub_models.hub_model import open_hub

    return open_hub(
        ref, revision=pin.get("revision"), offline=offline, records=records, contents=contents
    )
