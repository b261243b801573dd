"""The part of a model with an adapter, base or adapter, that has its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from resumerge.sources.companions import is_tokenizer_file
from resumerge.sources.remote.files import list_companions
from resumerge.sources.types import Source

_BESIDE = ("chat_template", "added_tokens", "special_tokens_map")
"""The beginnings of names of files that are no tokenizer on their own."""


def tokenizer_part(source: Source) -> Source:
    """Return the part of a source that has its tokenizer.

    For a model with an adapter, this is the adapter if it has a tokenizer (which may have more
    tokens than the model's), else the model.
    """
    if source.base is None or source.adapter is None:
        return source
    own = filter(is_tokenizer_file, list_companions(source.adapter))
    if any(name.startswith("tokenizer") for name in own):
        return replace(source.adapter, config=source.config)
    return source.base


def has_tokenizer(source: Source) -> bool:
    """Return whether a source has a file that can be a tokenizer."""
    return is_tokenizer(list_companions(tokenizer_part(source)))


def is_tokenizer(names: Iterable[str]) -> bool:
    """Return whether one of these files can be a tokenizer on its own."""
    names = filter(is_tokenizer_file, names)
    return not all(name.startswith(_BESIDE) or "/" in name for name in names)
