"""Names, paths and messages from other people, escaped for a terminal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable


def printable(text: object) -> str:
    r"""The text in one line; control characters are escaped, like ``\x1b``."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def shell_line(words: Iterable[str]) -> str:
    r"""A command in one line that can be copied into a shell.

    A word that the terminal cannot show (a letter that its encoding lacks, a line break, bytes that
    are not text) is written as bash and zsh read it: ``$'caf\xc3\xa9'``.
    """
    return " ".join(
        shlex.quote(word) if _is_displayable(word) else _escaped(word) for word in words
    )


def _is_displayable(word: str) -> bool:
    try:
        word.encode(getattr(sys.stderr, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return word.isprintable()


def _escaped(word: str) -> str:
    raw = word.encode("utf-8", "surrogateescape")
    letters = (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in raw)
    escaped = ("\\" + letter if letter in ("'", "\\") else letter for letter in letters)
    return f"$'{''.join(escaped)}'"
