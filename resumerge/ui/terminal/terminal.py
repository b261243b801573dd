"""Printing for commands: results and documents on stdout, all other messages on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NoReturn

from click.exceptions import Exit

from resumerge.ui.terminal.console import SafeConsole
from resumerge.ui.terminal.prose import say
from resumerge.ui.text.commands import TO_RESUME

out = SafeConsole()
err = SafeConsole(stderr=True)


def print_text(text: str, console: SafeConsole = out) -> None:
    """Print text for people, folded as `Prose` on a terminal."""
    say(console, text)


def print_command(command: str, console: SafeConsole = err) -> None:
    """Print a command on one line, so that it can be copied."""
    say(console, command, whole=True)


def print_command_to_resume(
    command: str, console: SafeConsole = err, heading: str = TO_RESUME
) -> None:
    """Print the last two lines of a command that stopped early: a heading, and a command to type.

    Programs read the last line, and people copy it.
    """
    say(console, heading)
    print_command(command, console)


def print_document(document: dict[str, Any]) -> None:
    """Print the document of ``--json``."""
    out.out(json.dumps(document, indent=2), highlight=False)


def stop(lines: Iterable[str], command: str) -> NoReturn:
    """Print lines and the command to run next, as the last line on stderr, and exit with 75."""
    for line in lines:
        print_text(line, err)
    print_command(command)
    raise Exit(75)
