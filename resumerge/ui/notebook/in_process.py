"""Merging in the process of the caller, which may be a notebook's kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter, Result
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Interrupted, Resumable, refuse
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.options.in_python import error_in_python
from resumerge.ui.notebook.results import DisplayedResult
from resumerge.ui.notebook.spoken import PythonReporter
from resumerge.ui.progress.keepalive import PrintClock, keepalive
from resumerge.ui.progress.styles import Style, console_of, reporter_of
from resumerge.ui.text.commands import GONE, is_gone, resume_call

if TYPE_CHECKING:
    from resumerge.ui.notebook.cell import CellReporter
    from resumerge.ui.progress.styles import PrintedReporter


def merge_in_process(
    options: Options,
    work: Callable[[Session], Result],
    reporter: Reporter | None,
    progress: str,
) -> DisplayedResult:
    """Merge in this process, with progress in the style of the caller.

    In a kernel, the first interrupt commits within two seconds. A second interrupt does not end the
    process, since all variables of the notebook would be lost.

    Args:
        options: the options of the call, read and checked.
        work: calls `run`, `resume` or `reproduce` of a session.
        reporter: receives the progress; None to show it in the style `progress`.
        progress: the style, one of `Style`; ignored if there is a `reporter`.

    Raises:
        InputError: an input, an option or the style is invalid; nothing was written.
        Resumable: the run stopped; the error has the call that resumes it.
        Interrupted: a signal stopped the run; the error has the call that resumes it.
    """
    if not isinstance(reporter, Reporter | None):
        raise refuse(
            "The reporter has the wrong type",
            expected="a resumerge.engine.reporter.Reporter, or progress='lines'",
            found=repr(reporter),
        )
    cell_reporter, printed_reporter = (
        _reporters(progress, options) if reporter is None else (None, None)
    )
    stop = StopRequest(patient=in_kernel())
    python_reporter = PythonReporter(reporter or cell_reporter or printed_reporter or Reporter())
    session = Session(options, python_reporter, stop=stop)
    with stop.listening():  # a second interrupt must not hide how the run ended
        try:
            result = replace(work(session), notes=tuple(python_reporter.notes))
            return DisplayedResult.of(result, None if cell_reporter is None else _cell_number())
        except (Interrupted, Resumable) as stop_error:
            stop_error.how_to_resume = _resume_call(session, options)
            error_in_python(stop_error)
            if cell_reporter is not None:
                cell_reporter.stopped(stop_error)
            raise
        finally:
            for own_reporter in (cell_reporter, printed_reporter):
                if own_reporter is not None:
                    own_reporter.close()


def _cell_number() -> int:
    """Return the execution number of the running cell."""
    number: int = sys.modules["IPython"].get_ipython().execution_count
    return number


def in_kernel() -> bool:
    """Return whether this process is a notebook's kernel, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def keepalive_in_notebook(what: str, progress: str) -> AbstractContextManager[object]:
    """Return a context manager that prints a line every few seconds.

    Args:
        what: a description of the work, for the line.
        progress: ``bar`` and ``lines`` print lines everywhere, ``auto`` only in a notebook; other
            styles print nothing.

    Raises:
        InputError: there is no such progress style.
    """
    style = _style(progress)
    prints = in_kernel() if style is Style.AUTO else style in (Style.BAR, Style.LINES)
    return keepalive(console_of(Style.LINES) if prints else None, what)


def _style(progress: str) -> Style:
    try:
        return Style(progress)
    except ValueError:
        words = ", ".join(style.value for style in Style)
        raise refuse("Unknown progress style", expected=f"one of {words}", found=progress) from None


def _reporters(
    progress: str, options: Options
) -> tuple[CellReporter | None, PrintedReporter | None]:
    """Return (the reporter of a cell, the reporter of a command), of which one or both are None."""
    style = _style(progress)
    if style is Style.AUTO:
        if not in_kernel():
            return None, None
        from resumerge.ui.notebook.cell import CellReporter

        return CellReporter(RunStore(options.state_dir).folder), None
    return None, reporter_of(style, console_of(style), PrintClock())


def _resume_call(session: Session, options: Options) -> str:
    """Return the Python call that resumes the run, or advice if the run does not exist."""
    run = session.run_id
    if run is None:
        return "run the same call again"
    if is_gone(run, options.state_dir):
        return f"{GONE} run the same call again"
    if session.has_had_lease:  # another machine may hold the lease now
        options = replace(options, take_over=False)
    return resume_call(run, options.state_dir, options)
