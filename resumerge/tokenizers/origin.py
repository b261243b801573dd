"""Decides which part of a model with an adapter has the tokenizer: base or adapter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from resumerge.sources.companions import is_tokenizer_file
from resumerge.sources.remote.files import list_companions
from resumerge.sources.types import Source

_BESIDE = ("chat_template", "added_tokens", "special_tokens_map")
"""The prefixes of the names of tokenizer files that only complement a tokenizer."""


def tokenizer_part(source: Source) -> Source:
    """Return the part of a source whose tokenizer is used.

    For a model with an adapter, this is the adapter if it has a tokenizer, and otherwise the base:
    an adapter's tokenizer may have more tokens than the base's. A source without an adapter is
    returned itself.
    """
    if source.base is None or source.adapter is None:
        return source
    tokenizer_files = filter(is_tokenizer_file, list_companions(source.adapter))
    if any(name.startswith("tokenizer") for name in tokenizer_files):
        return replace(source.adapter, config=source.config)
    return source.base


def has_tokenizer(source: Source) -> bool:
    """Return whether a source has a tokenizer; see `is_tokenizer`."""
    return is_tokenizer(list_companions(tokenizer_part(source)))


def is_tokenizer(names: Iterable[str]) -> bool:
    """Return whether one of these files is a tokenizer, and not only an addition to one."""
    names = filter(is_tokenizer_file, names)
    return not all(name.startswith(_BESIDE) or "/" in name for name in names)
