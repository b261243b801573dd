"""The progress of an upload: a bar on a terminal, or a line for each file in a log."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.text import Text

from resumerge.sizes import show_size, so_far
from resumerge.ui.progress.bars import Bar, Pace, show_bars
from resumerge.ui.progress.keepalive import drawn
from resumerge.ui.terminal.prose import say


class UploadProgress:
    """A context manager that shows the progress of an upload."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace, self._began = Pace(), time.monotonic()
        self._name, self._done, self._before, self._total = "", 0, 0, 0
        self._live = drawn(console, self._frame) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begins(self, name: str, nbytes: int, total: int) -> None:
        """Show the next file. All files before it were sent, or the repo already had them."""
        self._name, self._total, self._done = name, total, self._before
        self._before += nbytes
        if self._live is None:
            say(self._console, f"uploading {name}, {show_size(nbytes)}")

    def moved(self, nbytes: int) -> None:
        """Add `nbytes` to the bytes of the file that were sent."""
        self._done += nbytes
        self._pace.add(self._done)

    def _frame(self) -> RenderableType:
        if not self._done:
            activity = (
                f"uploading {self._name}" if self._name else "comparing the model with the repo"
            )
            text = so_far(activity, time.monotonic() - self._began)
            return Text(text, no_wrap=True, overflow="ellipsis")
        bar = Bar("uploaded", self._pace, self._done, self._total, self._name)
        return show_bars([bar], self._console.width)
