"""`run` and `resume` as functions: in this process, which may be a notebook's kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter, Result
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Interrupted, Resumable, refuse
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.ui.notebook.shown_results import ShownResult
from resumerge.ui.progress.keepalive import LastSaid, told_meanwhile
from resumerge.ui.progress.styles import Style, console_of, reporter_of

if TYPE_CHECKING:
    from resumerge.ui.notebook.cell import CellReporter
    from resumerge.ui.progress.styles import PrintedReporter


def merge_here(
    options: Options,
    work: Callable[[Session], Result],
    reporter: Reporter | None,
    progress: str,
) -> ShownResult:
    """Do what `run` and `resume` do; whoever stops it is told how to go on.

    In a kernel a second interrupt does not end the process, which would take all variables along:
    the first one already commits within two seconds.

    Raises:
        InputError, Resumable, Interrupted: see `resumerge.api.run`.
    """
    if not isinstance(reporter, Reporter | None):
        raise refuse(
            "The reporter cannot be that",
            expected="a resumerge.engine.reporter.Reporter, or progress='lines'",
            found=repr(reporter),
        )
    picture, printed = _shown(progress, options) if reporter is None else (None, None)
    session = Session(
        options, reporter or picture or printed, stop=StopRequest(patient=in_kernel())
    )
    try:
        return ShownResult.of(work(session))
    except (Interrupted, Resumable) as stopped:
        stopped.go_on = _go_on(session.run_id, options.state_dir)
        if picture is not None:
            picture.stopped(stopped)
        raise
    finally:
        for shown in (picture, printed):
            if shown is not None:
                shown.close()


def in_kernel() -> bool:
    """Whether this process is a notebook's kernel, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def told_here(what: str, progress: str) -> AbstractContextManager[None]:
    """While something is done that shows nothing: a line every few seconds, in a notebook, or
    where it is asked for.

    Raises:
        InputError: there is no such progress.
    """
    style = _style(progress)
    speaks = in_kernel() if style is Style.AUTO else style in (Style.BAR, Style.LINES)
    return told_meanwhile(console_of(Style.LINES) if speaks else None, what)


def _style(progress: str) -> Style:
    try:
        return Style(progress)
    except ValueError:
        words = ", ".join(style.value for style in Style)
        raise refuse("Unknown progress", expected=f"one of {words}", found=progress) from None


def _shown(progress: str, options: Options) -> tuple[CellReporter | None, PrintedReporter | None]:
    """A live picture, or what a command would print; at most one of them."""
    style = _style(progress)
    if style is Style.AUTO:
        if not in_kernel():
            return None, None
        from resumerge.ui.notebook.cell import CellReporter

        return CellReporter(RunStore(options.state_dir).folder), None
    return None, reporter_of(style, console_of(style), LastSaid())


def _go_on(run: str | None, state_dir: Path | None) -> str:
    """What to type in Python."""
    if run is None:
        return "run the same call again"
    return f"resumerge.resume({run!r}, state_dir={str(RunStore(state_dir).folder)!r})"
