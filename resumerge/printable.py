"""Names, paths and messages of other people, as text that people read.

They are escaped for a terminal and for Markdown, and addresses are without their secrets.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable

_USER = re.compile(
    r"(\b(?:https?|ftp):/+)[^/\s]*@"
    r"|(\b(?!https?:|ftp:)[a-z][a-z0-9+.-]*:/+)(?:[^/+\s]*@|[^/@+\s]*:\S.*@)",
    re.IGNORECASE,
)
"""The user and password in an address.

Keys of S3 are pasted as they are, with a ``/`` or a ``+`` in them. The ``@`` of a revision is no
user's; one slash is left of two in a `Path`.
"""

_QUERY = re.compile(
    r"\?\S*?\b[\w-]*(?:sig|signature|token|password|secret|credential)=\S*", re.IGNORECASE
)
"""The query of an address that was signed, like a SAS of Azure, or that has a token."""


def without_secrets(text: str) -> str:
    """Return a text in which ``…`` stands for what may be a secret in an address.

    A secret is a user with a password before the host or bucket, or the query of a signed address.
    """
    shown = _USER.sub(lambda found: f"{found[1] or found[2]}…@", text) if "@" in text else text
    return _QUERY.sub("?…", shown) if "?" in shown else shown


def printable(text: object) -> str:
    r"""Return the text in one line; control characters are escaped, like ``\x1b``."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def shell_line(words: Iterable[str]) -> str:
    r"""Return a command in one line that can be copied into a shell.

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


def in_fence(text: str, language: str) -> list[str]:
    """Return the lines of text as a block of code of Markdown, whatever it contains."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}{language}", text.strip(), fence]


def code_span(text: str, *, in_table: bool = False) -> str:
    """Return text as a code span of Markdown, whatever it contains."""
    text = printable(text)
    if in_table:
        text = text.replace("|", r"\|")  # which ends a cell, also in code
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def escaped(name: str) -> str:
    """Return a name as text of Markdown, not as markup or HTML."""
    return re.sub(
        r"[\\`*\[\]<>&|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", printable(name)
    )
