"""A console that tolerates closed outputs and encodings without some letters."""

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
    """A console for untrusted text, and for outputs that may be closed at any time.

    Markup in text is printed as it is, unless a call passes ``markup=True``, since paths may look
    like markup. Control characters are escaped (`printable`). After its output is closed, the
    console prints nothing.

    Args:
        stderr: whether to print on stderr, where a message that cannot be written is dropped. It
            must not stop a merge.
        terminal: whether to treat the output as a terminal; None to detect it. A notebook's cell
            then does not count as a terminal, although it has a pseudo-terminal, and gets no
            colours: the kernel sets FORCE_COLOR, not the user.
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
    """Write one of the JSON Lines of ``--json``. A line that cannot be written is dropped."""
    print(json.dumps({"kind": kind, **data}), file=cast("TextIO", LossyStream(stream)), flush=True)


def silence(stream: object) -> None:
    """Discard the buffer of a stream and all later output, by redirecting it to /dev/null."""
    try:
        number = stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, number)
    os.close(devnull)


def escape_unknown_letters(stream: TextIO) -> None:
    r"""Let a stream write letters that its encoding lacks as escapes, like ``\xf6``."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
