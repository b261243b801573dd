"""The tokenizer's files, which are made from the metadata of a GGUF file when they are read."""

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
"""Elements of a list that are written at once."""


@dataclass(frozen=True)
class _First:
    """The first file of a model, which has the metadata, as a cache key of the files made of it."""

    path: str
    identity: str
    source: Source = field(compare=False)


def contained_file(source: Source, name: str) -> bytes:
    """Return the content of one of a model's `contained` files.

    Raises:
        InputError: the file is damaged.
        Resumable: it cannot be read now.
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
        part = Stored("", "U8", (end - begin,), file.name, begin, source=source.number)
        return reader.whole(part)

    try:
        values = whole_values(
            read,
            size=file.size,
            file=file.name,
            where=f"{source.ref.text}: {file.name}",
            names=LONG_KEYS,
        )
    finally:
        reader.close()
    made = tokenizer_of(Metadata(source.ref.text, values), source.contained.tokens)
    return {name: b"".join(_json(content)) + b"\n" for name, content in made.items()}


def _json(value: Any) -> Iterator[bytes]:
    """Yield the JSON of a value in parts: in one, a vocabulary would take ten times its bytes."""
    if isinstance(value, dict) and len(value) <= _AT_ONCE:
        for number, (key, inner) in enumerate(value.items()):
            yield (b", " if number else b"{") + json.dumps(key).encode() + b": "
            yield from _json(inner)
        yield b"}" if value else b"{}"
        return
    if isinstance(value, (dict, list)) and len(value) > _AT_ONCE:
        parts = iter(value.items() if isinstance(value, dict) else value)
        before = first = b"{" if isinstance(value, dict) else b"["
        while part := type(value)(islice(parts, _AT_ONCE)):
            yield before + _dumped(part)[1:-1]
            before = b", "
        yield b"}" if first == b"{" else b"]"
        return
    yield _dumped(value)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")
