"""Untrusted names, paths and messages, converted to text for people.

They are escaped for a terminal or for Markdown, and secrets are removed from addresses.
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

Users paste keys of S3 unchanged, although they may contain ``/`` or ``+``. The ``@`` before a
revision is not matched. A `Path` keeps only one of two slashes.
"""

_QUERY = re.compile(
    r"\?\S*?\b[\w-]*(?:sig|signature|token|password|secret|credential)=\S*", re.IGNORECASE
)
"""The query of a signed address, like a SAS of Azure, or of an address with a token."""


def without_secrets(text: str) -> str:
    """Return a text with ``…`` in place of possible secrets in addresses.

    A possible secret is a user with a password before the host or bucket, or the query of a signed
    address.
    """
    safe_text = _USER.sub(lambda found: f"{found[1] or found[2]}…@", text) if "@" in text else text
    return _QUERY.sub("?…", safe_text) if "?" in safe_text else safe_text


def printable(text: object) -> str:
    r"""Return a text in one line, with control characters escaped, like ``\x1b``."""
    plain_text = str(text)
    if plain_text.isprintable():
        return plain_text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in plain_text
    )


def shell_line(words: Iterable[str]) -> str:
    r"""Return a command as one line that can be pasted into a shell.

    Some words cannot be shown in a terminal: its encoding may lack a letter, or the word has a line
    break or bytes that are not text. These words are written in the form ``$'caf\xc3\xa9'``, which
    bash and zsh read.
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
    data = word.encode("utf-8", "surrogateescape")
    letters = (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in data)
    escaped_letters = ("\\" + letter if letter in ("'", "\\") else letter for letter in letters)
    return f"$'{''.join(escaped_letters)}'"


def in_fence(text: str, language: str) -> list[str]:
    """Return a text as the lines of a fenced code block of Markdown, whatever the text contains."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}{language}", text.strip(), fence]


def code_span(text: str, *, in_table: bool = False) -> str:
    """Return a text as a code span of Markdown, whatever the text contains."""
    text = printable(text)
    if in_table:
        text = text.replace("|", r"\|")  # even in code it would end the cell
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def escaped(name: str) -> str:
    """Return a name with its Markdown and HTML markup escaped."""
    return re.sub(
        r"[\\`*\[\]<>&|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", printable(name)
    )
