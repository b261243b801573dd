"""Where the tokenizer of a model with an adapter comes from."""

from __future__ import annotations

from dataclasses import replace

from resumerge.sources.companions import is_tokenizer_file
from resumerge.sources.hub.files import list_companions
from resumerge.sources.types import Source


def tokenizer_part(source: Source) -> Source:
    """The folder or repo that has a model's tokenizer: of one with an adapter, the adapter's if it
    has a tokenizer (it may know tokens that the model's does not), else the model's.
    """
    if source.base is None or source.adapter is None:
        return source
    own = filter(is_tokenizer_file, list_companions(source.adapter))
    if any(name.startswith("tokenizer") for name in own):
        return replace(source.adapter, config=source.config)
    return source.base
