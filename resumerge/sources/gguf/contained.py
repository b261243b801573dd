"""The tokenizer's files of a model in GGUF: made from the metadata when they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from resumerge.sources.formats.gguf import whole_values
from resumerge.sources.gguf.metadata import Metadata
from resumerge.sources.gguf.tokenizer import LONG_KEYS, tokenizer_of
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source
from resumerge.tensors import Stored

_AT_ONCE = 1000
"""The most elements of a list or dictionary that are converted to JSON at once."""


@dataclass(frozen=True)
class _First:
    """The first file of a model, which has the metadata: the cache key of the tokenizer's files."""

    path: str
    identity: str
    source: Source = field(compare=False)


def contained_file(source: Source, name: str) -> bytes:
    """Return the content of one of a model's `contained` files.

    Raises:
        InputError: the GGUF file is damaged.
        Resumable: the GGUF file cannot be read now.
    """
    file = next(iter(source.files.values()))
    identity = json.dumps(dict(file.identity), sort_keys=True)
    return _files(_First(str(source.folder / file.name), identity, source))[name]


@lru_cache(maxsize=1)
def _files(first: _First) -> dict[str, bytes]:
    source = first.source
    file = next(iter(source.files.values()))
    reader = SourceReader({source.number: replace(source, streams=True)})

    def read(begin: int, end: int) -> bytes:
        stored_range = Stored("", "U8", (end - begin,), file.name, begin, source=source.number)
        return reader.whole(stored_range)

    try:
        metadata_values = whole_values(
            read,
            size=file.size,
            file=file.name,
            where=f"{source.ref.text}: {file.name}",
            names=LONG_KEYS,
        )
    finally:
        reader.close()
    contents = tokenizer_of(Metadata(source.ref.text, metadata_values), source.contained.tokens)
    return {name: b"".join(_json(content)) + b"\n" for name, content in contents.items()}


def _json(value: Any) -> Iterator[bytes]:
    """Yield the JSON of a value in parts, to save memory.

    In one part, a vocabulary would take ten times its size.
    """
    if isinstance(value, dict) and len(value) <= _AT_ONCE:
        for number, (key, inner_value) in enumerate(value.items()):
            yield (b", " if number else b"{") + json.dumps(key).encode() + b": "
            yield from _json(inner_value)
        yield b"}" if value else b"{}"
        return
    if isinstance(value, (dict, list)) and len(value) > _AT_ONCE:
        remaining_items = iter(value.items() if isinstance(value, dict) else value)
        separator = opening = b"{" if isinstance(value, dict) else b"["
        while next_items := type(value)(islice(remaining_items, _AT_ONCE)):
            yield separator + _dumped(next_items)[1:-1]
            separator = b", "
        yield b"}" if opening == b"{" else b"]"
        return
    yield _dumped(value)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")
