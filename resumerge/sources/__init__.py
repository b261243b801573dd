"""Input models: where their tensors stand, what pins them, and reading ranges of them."""

from __future__ import annotations

from pathlib import Path

from resumerge.recipe.model import ModelRef
from resumerge.recipe.references import is_local
from resumerge.sources.hub_files import fetch, list_companions
from resumerge.sources.model import Source, SourceFile, TensorInfo
from resumerge.sources.records import Records

__all__ = [
    "Records",
    "Source",
    "SourceFile",
    "TensorInfo",
    "fetch",
    "list_companions",
    "open_source",
]


def open_source(
    ref: ModelRef,
    *,
    revision: str | None = None,
    folder: Path | None = None,
    offline: bool = False,
    records: Records | None = None,
) -> Source:
    """Open a model: its headers and config are read, its weights are not.

    Args:
        revision: the commit that a run has pinned; None resolves the reference's own revision.
        folder: where a local model was when a run began; None looks from the working folder.
        offline: touch no network.
        records: what is known of Hub files already.

    Raises:
        InputError: the model is not there, or is damaged.
        Resumable: the network failed.
    """
    if folder is not None or is_local(ref.name):
        from resumerge.sources.local import open_local

        return open_local(ref, folder)
    from resumerge.sources.hub import open_hub

    return open_hub(ref, revision=revision, offline=offline, records=records)
