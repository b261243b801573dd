"""A local file as whoever sends it reads it: told piece by piece, and to be cut short."""

from __future__ import annotations

import io
import os
from pathlib import Path

from resumerge.mirror.stores.base import Moved

PIECE = 4 << 20
"""Bytes that are read at once, at most."""


class Stopped(Exception):
    """The reading was ended. No `OSError`, which HTTP libraries take for the network's."""


class UploadReader(io.BufferedIOBase):
    """Every piece is told to `moved` before it goes out; what is sent again is told again.

    Args:
        moved: may wait, or raise to end the sending.

    Attributes:
        stopped: what ended the reading; whoever reads on gets `Stopped`, again and again.
    """

    def __init__(self, path: Path, moved: Moved) -> None:
        self._stream = path.open("rb", buffering=0)
        self._moved = moved
        self.stopped: Exception | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        """At most a `PIECE`, whatever was asked for; nothing only at the end."""
        if self.stopped is not None:
            raise Stopped
        try:
            data = self._stream.read(PIECE if size is None or size < 0 else min(size, PIECE))
            if data:
                self._moved(len(data))
        except Exception as error:
            self.stopped = error
            raise Stopped from error
        return data or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """To where the next piece is read from."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Where the next piece is read from."""
        return self._stream.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()
