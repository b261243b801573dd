"""The styles of progress that ``--progress`` accepts, and their reporters."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from resumerge.host.platform import TERMINAL, goes_to
from resumerge.ui.progress.keepalive import PrintClock
from resumerge.ui.terminal.console import SafeConsole

if TYPE_CHECKING:
    from resumerge.ui.progress.console_reporter import ConsoleReporter, QuietReporter
    from resumerge.ui.progress.json_reporter import JsonReporter

    PrintedReporter: TypeAlias = ConsoleReporter | JsonReporter | QuietReporter


class Style(StrEnum):
    """The values of ``--progress``."""

    AUTO = "auto"
    BAR = "bar"
    LINES = "lines"
    JSON = "json"
    NONE = "none"


def console_of(style: Style) -> SafeConsole:
    """Return a console on stderr, for messages.

    The console uses colours on a terminal, but not in a notebook's cell.
    """
    terminal = {Style.BAR: True, Style.LINES: False}.get(style)
    return SafeConsole(stderr=True, terminal=terminal)


def reporter_of(
    style: Style, err: SafeConsole, clock: PrintClock, *, announced: bool = False
) -> PrintedReporter:
    """Return a reporter that shows progress in a style until it is closed.

    Args:
        style: the requested style; `AUTO` draws bars on a terminal, and prints lines elsewhere.
        err: the console for messages, from `console_of`.
        clock: the reporter resets it whenever it prints.
        announced: whether an earlier worker has printed the description of the run.
    """
    # Reporters import the planner, which takes 0.3 s. A worker handles signals before that import.
    from resumerge.ui.progress.console_reporter import ConsoleReporter, QuietReporter
    from resumerge.ui.progress.json_reporter import JsonReporter

    if style is Style.JSON:
        return JsonReporter(sys.stdout, clock)
    if style is Style.NONE:
        return QuietReporter(err)
    draws_bars = style is Style.BAR or (style is Style.AUTO and goes_to(sys.stderr) == TERMINAL)
    return ConsoleReporter(
        err, bar=draws_bars and err.is_terminal, clock=clock, announced=announced
    )
