"""A local file as a stream for HTTP libraries. It reports progress, and can be stopped."""

from __future__ import annotations

import io
import os
from pathlib import Path

from resumerge.mirror.stores.base import Moved

REPORT_BYTES = 4 << 20
"""The most bytes per report, and therefore per read."""


class Stopped(Exception):
    """An error: reading was stopped. HTTP libraries do not retry it, as they do an `OSError`."""


class UploadReader(io.BufferedIOBase):
    """A file that reports each piece before it is sent, also when it is sent again.

    Args:
        path: the local file. It is opened at once, and `close` closes it.
        moved: called with the number of bytes; may wait, or raise to stop.

    Attributes:
        stopped: the error that `moved` or the file raised; None if reading was not stopped. After
            this error, every read raises `Stopped`.
    """

    def __init__(self, path: Path, moved: Moved) -> None:
        self._stream = path.open("rb", buffering=0)
        self._moved = moved
        self.stopped: Exception | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `REPORT_BYTES` bytes, also if `size` is larger; empty at the file's end.

        Raises:
            Stopped: reading was stopped.
        """
        if self.stopped is not None:
            raise Stopped
        try:
            piece = self._stream.read(
                REPORT_BYTES if size is None or size < 0 else min(size, REPORT_BYTES)
            )
            if piece:
                self._moved(len(piece))
        except Exception as error:
            self.stopped = error
            raise Stopped from error
        return piece or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position of the next read."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._stream.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()
