"""``resumerge push`` for a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from resumerge.engine.push import Pushed
from resumerge.sizes import counted, show_size
from resumerge.ui.terminal.prose import say


class UploadProgress:
    """A bar over all bytes on a terminal, a line for each file elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("uploaded {task.percentage:3.0f}%"),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)
        self._before = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begins(self, name: str, nbytes: int, total: int) -> None:
        """The next file begins; those before it are there, sent or not."""
        self._bar.update(self._task, completed=self._before, total=total, description=name)
        self._before += nbytes
        if not self._console.is_terminal:
            say(self._console, f"uploading {name}, {show_size(nbytes)}")

    def moved(self, nbytes: int) -> None:
        """So many more bytes of the file were sent."""
        self._bar.advance(self._task, nbytes)


def show_pushed(pushed: Pushed) -> str:
    """What is there now."""
    there = show_size(pushed.nbytes - pushed.sent)
    known = f", of which {there} were there already" if pushed.sent < pushed.nbytes else ""
    what = f"{counted(len(pushed.files), 'file')}, {show_size(pushed.nbytes)}{known}"
    return f"Done: {what}, in {pushed.url}"
