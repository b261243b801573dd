"""Standard streams that drop output if they are closed, full, or without a reader.

A merge takes hours. Meanwhile its log may fill the disk, or its terminal may close. Neither should
stop the merge or change its exit code.
"""

from __future__ import annotations

import io
import os
import selectors
import sys
from contextlib import suppress
from typing import Any, TextIO

PATIENCE = 1.0
"""Seconds to wait for the reader of a full, non-blocking pipe; none after a write has failed."""

_STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}


class LossyFile(io.FileIO):
    """A file whose writes always succeed. Bytes that the descriptor does not accept are dropped."""

    _patience = PATIENCE

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        try:
            written_bytes = super().write(view)
            if written_bytes is None and self._takes_more():
                written_bytes = super().write(view)
        except OSError:
            written_bytes = None
        self._patience = PATIENCE if written_bytes else 0.0
        return view.nbytes if written_bytes is None else written_bytes

    def _takes_more(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_WRITE)
            return bool(selector.select(self._patience))


def occupy_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed (``>&-``) before this process began.

    Otherwise the next opened file, such as a shard, would get the descriptor of the stream, and
    printed text would be written to that file. Call this before any file is opened.
    """
    for name, number in _STANDARD.items():
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def lossy(stream: TextIO) -> TextIO:
    """Return a stream to the same descriptor that drops text it cannot write, also at exit.

    Args:
        stream: a text stream; returned unchanged if it has no open descriptor.
    """
    if not isinstance(stream, io.TextIOWrapper) or isinstance(_raw(stream), LossyFile):
        return stream
    try:
        number = stream.fileno()
        stream.flush()
    except OSError:
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(LossyFile(number, "w", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


class LossyStream:
    """A wrapper of a text stream that drops text it cannot write, and uses no descriptor.

    Consoles use it because the process may belong to another program, such as a notebook's kernel.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, or drop it if the stream does not accept it."""
        with suppress(OSError, ValueError):  # a closed stream raises ValueError
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, if it can be flushed."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _raw(stream: io.TextIOWrapper) -> object:
    return getattr(stream.buffer, "raw", None)
