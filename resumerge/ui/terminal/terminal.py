"""What commands print: a result or a document to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from click.exceptions import Exit

from resumerge.ui.terminal.console import PatientConsole

out = PatientConsole()
err = PatientConsole(stderr=True)


def print_text(text: str, console: PatientConsole = out) -> None:
    """Print text as it is: lines are not broken, so that they can be copied."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_document(document: dict[str, Any]) -> None:
    """Print the document of ``--json``."""
    out.out(json.dumps(document, indent=2), highlight=False)


def stop(lines: Iterable[str], command: str) -> NoReturn:
    """Exit, resumable: the last line on stderr is the command that goes on."""
    for line in lines:
        print_text(line, err)
    print(command, file=sys.stderr)
    raise Exit(75)
