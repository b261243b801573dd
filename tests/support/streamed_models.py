"""Local models that are read by ranges, as if their files were on a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from resumerge.planning.estimates.memory import CLIENT_RSS
from resumerge.remote.file import Response
from resumerge.sources.types import Source

T = TypeVar("T")
CHUNK = 1000


@dataclass(frozen=True)
class ServedFile:
    """A file on this disk, with the interface of a `RemoteFile` that the range reader uses."""

    path: Path
    sent: Counter[str] = field(compare=False)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def cache(self) -> Path:
        return self.path.parent

    def call(self, do: Callable[[], T], **facts: Any) -> T:
        return do()

    @contextmanager
    def request(self, start: int, stop: int | None = None) -> Iterator[Response]:
        assert stop is not None and start < stop <= self.size
        with self.path.open("rb") as stream:
            stream.seek(start)
            data = stream.read(stop - start)
        self.sent[str(self.path)] += len(data)
        chunks = (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))
        headers = {"Content-Range": f"bytes {start}-{stop - 1}/{self.size}"}
        yield Response(206, headers, chunks, lambda: None)


def serve_local_models(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Have ``--stream`` read local models, too, and return the count of bytes sent, by path."""
    sent: Counter[str] = Counter()
    for module in ("sources.reader", "engine.opening.streamed_sources"):
        patch.setattr(
            f"resumerge.{module}.remote_file",
            lambda source, name: ServedFile(source.path(name), sent),
        )
    patch.setattr(Source, "is_streamed", lambda self, name: self.streams)
    patch.setitem(CLIENT_RSS, "local", 0)
    return sent
