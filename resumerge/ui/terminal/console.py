"""Printing to somebody who may go away, on a terminal that may not know every letter."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from resumerge.host.platform import in_notebook
from resumerge.printable import printable


class PatientConsole(Console):
    """A console that goes on in silence once its reader is gone: no reason to stop a merge.

    Text is printed as it is, since a path may look like markup; ``markup=True`` asks for it. But
    what could drive the terminal is spelled out, whoever wrote it: see `printable`.

    Args:
        terminal: whether it shall be taken for one. By default a notebook's cell is not, though
            there is a pseudo-terminal, nor are colours asked for there: the kernel sets
            FORCE_COLOR, not the user.
    """

    def __init__(self, *, stderr: bool = False, terminal: bool | None = None) -> None:
        if terminal is None and in_notebook():
            terminal = False
        super().__init__(
            stderr=stderr, emoji=False, markup=False, force_terminal=terminal, force_jupyter=False
        )

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
    """One of the JSON Lines of ``--json``."""
    try:
        print(json.dumps({"kind": kind, **data}), file=stream, flush=True)
    except BrokenPipeError:  # nobody listens any more, which is no reason to stop
        silence(stream)


def silence(stream: object) -> None:
    """Throw away what is written to a stream from now on, and what waits in its buffer."""
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
