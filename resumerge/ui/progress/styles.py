"""How progress is shown, by the name that ``--progress`` gives it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from resumerge.host.screen import TERMINAL, goes_to
from resumerge.ui.terminal.console import PatientConsole

if TYPE_CHECKING:
    from resumerge.ui.progress.keepalive import LastSaid
    from resumerge.ui.progress.progress import ConsoleReporter, JsonReporter, QuietReporter

    PrintedReporter = ConsoleReporter | JsonReporter | QuietReporter


class Style(StrEnum):
    """What ``--progress`` may be."""

    AUTO = "auto"
    BAR = "bar"
    LINES = "lines"
    JSON = "json"
    NONE = "none"


def console_of(style: Style) -> PatientConsole:
    """Where messages for people go: stderr, with colours where that is a terminal and no cell."""
    terminal = {Style.BAR: True, Style.LINES: False}.get(style)
    return PatientConsole(stderr=True, terminal=terminal)


def reporter_of(style: Style, err: PatientConsole, said: LastSaid) -> PrintedReporter:
    """One that shows progress as asked, until it is closed.

    Args:
        err: see `console_of`.
        said: told whenever something is printed.
    """
    from resumerge.ui.progress.progress import ConsoleReporter, JsonReporter, QuietReporter

    if style is Style.JSON:
        return JsonReporter(sys.stdout, said)
    if style is Style.NONE:
        return QuietReporter(err)
    bar = style is Style.BAR or (style is Style.AUTO and goes_to(sys.stderr) == TERMINAL)
    return ConsoleReporter(err, bar=bar and err.is_terminal, said=said)
