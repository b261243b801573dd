"""Printing for commands: results and documents to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from click.exceptions import Exit

from resumerge.ui.terminal.console import SafeConsole

out = SafeConsole()
err = SafeConsole(stderr=True)


def print_text(text: str, console: SafeConsole = out) -> None:
    """Print text without wrapping its lines, so that they can be copied."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_document(document: dict[str, Any]) -> None:
    """Print the document of ``--json``."""
    out.out(json.dumps(document, indent=2), highlight=False)


def stop(lines: Iterable[str], command: str) -> NoReturn:
    """Exit with code 75. The last line on stderr is the command to run next."""
    for line in lines:
        print_text(line, err)
    print(command, file=sys.stderr)
    raise Exit(75)
