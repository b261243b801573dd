"""A console that survives closed outputs and terminals without some letters."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import IO, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from resumerge.host.platform import in_notebook
from resumerge.printable import printable
from resumerge.ui.terminal.streams import LossyStream


class SafeConsole(Console):
    """A console for text from strangers and for readers that go away.

    Paths may look like markup, so text is printed as it is unless a call asks for ``markup=True``.
    Control characters are spelled out: see `printable`. When the reader is gone, the console is
    silent.

    Args:
        stderr: whether to print messages. A message that cannot be written is dropped, because that
            is no reason to stop a merge.
        terminal: whether to treat the output as a terminal. By default a notebook's cell is not
            one, although it has a pseudo-terminal. Colours are not used there either: the kernel
            sets FORCE_COLOR, not the user.
    """

    def __init__(self, *, stderr: bool = False, terminal: bool | None = None) -> None:
        if terminal is None and in_notebook():
            terminal = False
        super().__init__(
            stderr=stderr, emoji=False, markup=False, force_terminal=terminal, force_jupyter=False
        )

    @property
    def file(self) -> IO[str]:
        stream = super().file
        return cast("IO[str]", LossyStream(stream)) if self.stderr else stream

    @file.setter
    def file(self, new: IO[str]) -> None:
        self._file = new

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = "\n".join(map(printable, segment.text.split("\n")))
            yield segment if segment.control else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence(self.file)


def print_json_line(stream: TextIO, kind: str, **data: Any) -> None:
    """Write one of the JSON Lines of ``--json``, or drop it if it cannot be written."""
    print(json.dumps({"kind": kind, **data}), file=cast("TextIO", LossyStream(stream)), flush=True)


def silence(stream: object) -> None:
    """Discard everything written to a stream from now on, and what its buffer holds."""
    try:
        number = stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def escape_unknown_letters(stream: TextIO) -> None:
    r"""Write a letter that the stream's encoding lacks as ``\xf6``, rather than fail."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
